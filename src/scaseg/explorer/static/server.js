// The page that a server gives: pictures are dropped, pasted or picked, and sent to it.

import {addImage, startExplorer} from "./app.js";

const $ = (id) => document.getElementById(id);

async function ask(path, options) {
  const answer = await fetch(path, options);
  if (answer.ok) return answer.json();
  const {error} = await answer.json().catch(() => ({error: `the server answered ${answer.status}`}));
  const later = answer.headers.get("Retry-After");
  throw new Error(later ? `${error} in ${later} seconds` : error);
}

function imageOf({id, name}) {
  let payload = null;
  const load = async () => {
    payload = payload || await busy(ask(`/api/images/${id}/view`));
    return payload;
  };
  const at = `/api/images/${id}`;
  return {id, name, thumbnail: `${at}/thumbnail.jpg`, page: `${at}/page.html`, load};
}

async function busy(promise) {
  document.body.classList.add("busy");
  $("working").hidden = false;
  try {
    return await promise;
  } finally {
    document.body.classList.remove("busy");
    $("working").hidden = true;
  }
}

async function send(file) {
  $("problem").textContent = "";
  const body = new FormData();
  body.append("image", file, file.name || "picture");
  try {
    await addImage(imageOf(await busy(ask("/api/images", {method: "POST", body}))));
  } catch (error) {
    $("problem").textContent = error.message;
  }
}

function occlude(image, model, row, col, part) {
  const query = new URLSearchParams({model, row, col, part});
  return ask(`/api/images/${image.id}/occlusion?${query}`);
}

async function sendAll(files) {
  for (const file of [...files]) await send(file); // the server says what is no picture
}

$("add").hidden = false;
$("file").addEventListener("change", () => sendAll($("file").files));
document.addEventListener("paste", (event) => sendAll(event.clipboardData.files));
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files.length) sendAll(event.dataTransfer.files);
  else $("problem").textContent = "that is no picture";
});

try {
  await startExplorer((await ask("/api/images")).map(imageOf), {occlude});
} catch (error) {
  $("problem").textContent = error.message;
}
