// A page that holds its pictures itself: it needs no server.

import {startExplorer} from "./app.js";

const data = JSON.parse(document.getElementById("data").textContent);
startExplorer(data.map((payload) => ({
  name: payload.name,
  thumbnail: payload.image.src,
  load: async () => payload,
})));
