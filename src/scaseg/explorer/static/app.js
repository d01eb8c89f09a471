// The page: what the pointer, the keys and the controls do.

import {encodeNpz} from "./arrays.js";
import {DIVERGING_TABLE, HEAT_TABLE} from "./colors.js";
import {pictureOf, svgOf} from "./keep.js";
import {COMMON, EVEN, Stage, element, pinColor, readModel} from "./stage.js";

const $ = (id) => document.getElementById(id);
const MOST_PINS = 6;
const LISTED = 4; // classes that the context of a point is said to come from

const NOTES = {
  [EVEN]: "This map is nearly even: hardly any source counts more than another.",
  [COMMON]: "All neurons of this picture have nearly this map: they choose, but all alike.",
};

const state = {image: 0, pins: [], cursor: null, mode: "shares", reversed: false, opacity: 55,
  only: null, doubtful: false, doubt: 50, disagree: false};
let images = [];
let stages = [];
let askOcclusion = null;
let asked = 0;

// Show another picture, such as one that was just dropped.
export async function addImage(image) {
  images = [...images, image];
  Object.assign(state, {image: images.length - 1, pins: [], cursor: null, only: null});
  writeAddress();
  drawImageList();
  await showImage();
}

// images: [{name, thumbnail, load}], load() -> the payload of explorer/payload.py.
// occlude(image, model, row, column, part): the probabilities without the strongest sources; it
// asks a server, so a page of its own has none.
export async function startExplorer(available, {occlude = null} = {}) {
  images = available;
  askOcclusion = occlude;
  $("occlusion").hidden = true;
  $("part").addEventListener("input", drawOcclusion);
  readAddress();
  for (const [id, name, value] of [["reversed", "reversed", "checked"],
    ["doubtful", "doubtful", "checked"], ["disagree", "disagree", "checked"]]) {
    $(id)[value] = state[name];
    $(id).addEventListener("change", () => change({[name]: $(id)[value]}));
  }
  for (const name of ["opacity", "doubt"]) {
    $(name).value = state[name];
    $(name).addEventListener("input", () => change({[name]: Number($(name).value)}));
  }
  for (const radio of document.querySelectorAll('input[name="mode"]')) {
    radio.checked = radio.value === state.mode;
    radio.addEventListener("change", () => change({mode: radio.value}));
  }
  $("clear").addEventListener("click", () => change({pins: []}));
  $("keep-png").addEventListener("click", async () => save("png", await pictureOf(stages)));
  $("keep-svg").addEventListener("click", () => save("svg", svgOf(stages)));
  $("keep-npz").addEventListener("click", () => save("npz", mapsFile()));
  window.addEventListener("hashchange", () => { readAddress(); showImage(); });
  drawImageList();
  await showImage();
}

function change(changes) {
  Object.assign(state, changes);
  draw();
  writeAddress();
}

function readAddress() {
  const view = new URLSearchParams(location.hash.slice(1));
  const point = (text) => {
    const [x, y] = text.split(",").map(Number);
    return Number.isFinite(x) && Number.isFinite(y) ? {x, y} : null;
  };
  state.image = Math.min(images.length - 1, Math.max(0, Number(view.get("image")) || 0));
  state.pins = (view.get("pins") || "").split(";").filter(Boolean).map(point).filter(Boolean)
    .slice(0, MOST_PINS);
  if (["shares", "coefficients", "difference"].includes(view.get("mode"))) {
    state.mode = view.get("mode");
  }
  state.reversed = view.get("reversed") === "1";
  if (view.has("opacity")) state.opacity = Number(view.get("opacity")) || 0;
  state.only = view.has("class") ? Number(view.get("class")) : null;
}

function writeAddress() {
  const view = new URLSearchParams();
  if (images.length > 1) view.set("image", state.image);
  const pins = state.pins.map(({x, y}) => `${Math.round(x)},${Math.round(y)}`).join(";");
  if (pins) view.set("pins", pins);
  if (state.mode !== "shares") view.set("mode", state.mode);
  if (state.reversed) view.set("reversed", "1");
  if (state.opacity !== 55) view.set("opacity", state.opacity);
  if (state.only !== null) view.set("class", state.only);
  history.replaceState(null, "", `#${view}`);
}

async function showImage() {
  const payload = await images[state.image].load();
  const models = await Promise.all(payload.models.map(readModel));
  const {width, height, src} = payload.image;
  const inside = ({x, y}) => x >= 0 && y >= 0 && x < width && y < height;
  state.pins = state.pins.filter(inside);
  stages = models.map((model) => new Stage(model, {width, height}, src));
  for (const stage of stages) listen(stage);
  $("stages").replaceChildren(...stages.map((stage) => stage.root));
  $("disagree-label").hidden = stages.length < 2;
  document.body.dataset.image = payload.name;
  const {page} = images[state.image]; // the address of a page of its own, where there is a server
  $("keep-page").hidden = !page;
  if (page) $("keep-page").href = page;
  drawClasses();
  draw();
}

function listen(stage) {
  const {surface, picture} = stage;
  const pointOf = (event) => {
    const box = surface.getBoundingClientRect();
    const clip = (part, most) => Math.min(most - 1, Math.max(0, Math.floor(part * most)));
    return {x: clip((event.clientX - box.left) / box.width, picture.width),
      y: clip((event.clientY - box.top) / box.height, picture.height)};
  };
  surface.addEventListener("pointermove", (event) => point(pointOf(event)));
  surface.addEventListener("pointerleave", () => point(null));
  surface.addEventListener("click", (event) => pin(pointOf(event)));
  surface.addEventListener("keydown", (event) => press(event, stage));
}

function point(cursor) {
  state.cursor = cursor;
  drawMaps();
}

function pin(place) {
  change({pins: [...state.pins, place].slice(-MOST_PINS)});
}

function press(event, stage) {
  const {width, height} = stage.picture;
  const [rows, columns] = stage.model.grid.map;
  const step = (event.shiftKey ? 4 : 1);
  const moves = {ArrowLeft: [-width / columns, 0], ArrowRight: [width / columns, 0],
    ArrowUp: [0, -height / rows], ArrowDown: [0, height / rows]};
  const from = state.cursor || {x: width / 2, y: height / 2};
  if (event.key in moves) {
    const [x, y] = moves[event.key];
    const clip = (value, most) => Math.min(most - 1, Math.max(0, value));
    point({x: clip(from.x + step * x, width), y: clip(from.y + step * y, height)});
    $("announce").textContent = $("here").textContent;
  } else if (event.key === "Enter" || event.key === " ") {
    pin(from);
  } else if (event.key === "Escape") {
    change({pins: []});
  } else {
    return;
  }
  event.preventDefault();
}

function draw() {
  $("doubt-text").textContent = `${state.doubt} %`;
  for (const stage of stages) {
    const others = stages.map((one) => one.model).filter((model) => model !== stage.model);
    stage.drawLabels({
      only: state.only,
      doubtful: state.doubtful ? state.doubt / 100 : null,
      others: state.disagree && others.length ? others : null,
      opacity: state.opacity / 100,
    });
  }
  for (const button of document.querySelectorAll("#classes button")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.label) === state.only));
  }
  drawPinList();
  drawMaps();
  drawOcclusion();
}

// The map of the point under the pointer, else of the last pin.
function drawMaps() {
  const shown = state.cursor || state.pins.at(-1) || null;
  const other = state.cursor ? state.pins.at(-1) : state.pins.at(-2);
  let facts = null;
  for (const stage of stages) {
    stage.drawPins(state.pins.map((place) => stage.snap(place)),
      state.cursor && stage.snap(state.cursor));
    if (!shown) {
      stage.hideMap();
      stage.caption.replaceChildren(named(stage.model));
      continue;
    }
    const found = stage.drawMap(shown, {mode: state.mode, reversed: state.reversed, other});
    facts = facts || (found.values ? found : null);
    const {label, confidence} = stage.pixelAt(shown);
    const text = ` ${stage.model.classes[label]}, ${percent(confidence)}`;
    stage.caption.replaceChildren(named(stage.model), text + (found.note ? `; ${found.note}` : ""));
  }
  drawHere(shown);
  drawScale(facts);
}

function named(model) {
  return element("b", "", `${model.name} (${model.context})`);
}

function drawHere(shown) {
  if (!shown || !stages.length) {
    $("here").textContent = "Point at the picture.";
    $("sources").replaceChildren();
    return;
  }
  const stage = stages.find((one) => one.model.factors) || stages[0];
  const {label, confidence} = stage.pixelAt(shown);
  const {row, column} = stage.neuronAt(shown);
  const {classes} = stage.model;
  $("here").textContent = `${classes[label]}, ${percent(confidence)} (neuron ${row}, ${column})`;
  const sources = stage.sources(shown).slice(0, LISTED);
  $("sources").replaceChildren(...sources.map(({label: from, part}) => {
    const line = element("li");
    line.append(element("span", "part", percent(part)), element("span", "", classes[from]));
    return line;
  }));
}

function drawScale(facts) {
  $("scale").hidden = !facts;
  $("map-note").textContent = (facts && NOTES[facts.note]) || "";
  if (!facts) return;
  const canvas = document.querySelector("#scale canvas");
  const colors = facts.isDifference ? DIVERGING_TABLE : HEAT_TABLE;
  const pixels = Uint8ClampedArray.from(colors.flatMap((color) => [...color, 255]));
  canvas.getContext("2d").putImageData(new ImageData(pixels, 256, 1), 0, 0);
  const times = (value) => `${(value / facts.even).toPrecision(2)} × even`;
  const plain = state.mode === "coefficients" && !state.reversed;
  $("scale-low").textContent = facts.isDifference ? `−${times(facts.top)}` : "0";
  $("scale-top").textContent = plain ? facts.top.toPrecision(3) : times(facts.top);
}

function drawClasses() {
  const {model} = stages[0];
  const order = model.areas.map((area, label) => ({area, label})).filter(({area}) => area > 0)
    .sort((one, other) => other.area - one.area);
  $("classes").replaceChildren(...order.map(({area, label}) => {
    const button = element("button");
    button.type = "button";
    button.dataset.label = label;
    const swatch = element("span", "swatch");
    swatch.style.background = model.palette[label];
    button.append(swatch, element("span", "", model.classes[label]),
      element("span", "number", percent(area)));
    button.addEventListener("click", () => change({only: state.only === label ? null : label}));
    const line = element("li");
    line.append(button);
    return line;
  }));
}

function drawPinList() {
  $("no-pins").hidden = state.pins.length > 0;
  $("clear").hidden = !state.pins.length;
  const stage = stages.find((one) => one.model.factors) || stages[0];
  $("pins").replaceChildren(...state.pins.map((place, number) => {
    const line = element("li");
    const small = element("canvas");
    stage.drawMap(place, {mode: "shares", reversed: state.reversed});
    [small.height, small.width] = stage.model.grid.map;
    if (stage.model.factors) small.getContext("2d").drawImage(stage.map, -1, -1);
    small.style.borderColor = pinColor(number);
    const {label, confidence} = stage.pixelAt(place);
    const from = stage.sources(place).slice(0, 3)
      .map(({label: source, part}) => `${percent(part)} ${stage.model.classes[source]}`);
    const text = element("div");
    text.append(element("b", "", `${number + 1}: ${stage.model.classes[label]}`),
      ` ${percent(confidence)}`, element("br"), from.join(", "));
    const remove = element("button", "remove", "×");
    remove.type = "button";
    remove.setAttribute("aria-label", `remove pin ${number + 1}`);
    remove.addEventListener("click", () =>
      change({pins: state.pins.filter((_, other) => other !== number)}));
    line.append(small, text, remove);
    return line;
  }));
}

function drawImageList() {
  $("images").hidden = images.length < 2;
  $("images").replaceChildren(...images.map(({name, thumbnail}, number) => {
    const button = element("button");
    button.type = "button";
    button.setAttribute("aria-pressed", String(number === state.image));
    const picture = element("img");
    picture.src = thumbnail;
    picture.alt = name;
    button.append(picture);
    button.addEventListener("click", async () => {
      Object.assign(state, {image: number, pins: [], cursor: null, only: null});
      writeAddress();
      drawImageList();
      await showImage();
    });
    return button;
  }));
}

// What becomes of the last pin's decision without the sources that its map points to.
async function drawOcclusion() {
  const place = state.pins.at(-1);
  const shown = stages.filter((one) => one.model.factors);
  $("occlusion").hidden = !askOcclusion || !place || !shown.length;
  const part = Number($("part").value);
  $("part-text").textContent = `${part} %`;
  if ($("occlusion").hidden) return;
  const turn = ++asked;
  if (part === 0) {
    $("after").replaceChildren();
    return;
  }
  const lines = await Promise.all(shown.map(async (stage) => {
    const {row, column} = stage.neuronAt(place);
    const {name} = stage.model;
    const {before, after} = await askOcclusion(images[state.image], name, row, column, part / 100);
    const label = Object.keys(before).reduce((best, one) => before[one] > before[best] ? one : best);
    const line = element("li");
    const winner = Object.keys(after).reduce((best, one) => after[one] > after[best] ? one : best);
    const now = winner === label ? "" : `, now ${winner} ${percent(after[winner])}`;
    line.append(element("span", "", shown.length > 1 ? `${name}: ${label}` : label),
      element("span", "number", `${percent(before[label])} → ${percent(after[label])}${now}`));
    return line;
  }));
  if (turn === asked) $("after").replaceChildren(...lines); // else a later one was faster
}

// The maps of all pins, or of the middle of the picture, of every model that has some.
function mapsFile() {
  const arrays = {};
  const places = state.pins.length ? state.pins : [state.cursor || middle()];
  for (const [number, {model}] of stages.entries()) {
    if (!model.factors) continue;
    const [rows, columns] = model.grid.map;
    const maps = places.map((place) =>
      stages[number].mapValues(place, {mode: "shares", reversed: state.reversed}).values);
    const neurons = places.flatMap((place) => {
      const {row, column} = stages[number].neuronAt(place);
      return [row, column];
    });
    const all = new Float32Array(maps.length * rows * columns);
    maps.forEach((map, index) => all.set(map, index * rows * columns));
    const suffix = number ? `_${number + 1}` : "";
    arrays[`maps${suffix}`] = {values: all, shape: [maps.length, rows, columns]};
    arrays[`neurons${suffix}`] = {values: Int32Array.from(neurons), shape: [maps.length, 2]};
  }
  return new Blob([encodeNpz(arrays)], {type: "application/octet-stream"});
}

function middle() {
  const {width, height} = stages[0].picture;
  return {x: Math.floor(width / 2), y: Math.floor(height / 2)};
}

function save(kind, blob) {
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${document.body.dataset.image.replace(/\.[^.]*$/, "")}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function percent(part) {
  return part > 0 && part < 0.01 ? "<1 %" : `${Math.round(100 * part)} %`;
}
