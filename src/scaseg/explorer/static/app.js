// The page: what the pointer, the keys and the controls do.

import {CHECKED, NUMBERS, USUAL, formatView, parseView} from "./address.js";
import {DIVERGING_TABLE, HEAT_TABLE} from "./colors.js";
import {mapsOf, pictureOf, save, svgOf} from "./keep.js";
import {COMMON, EVEN, Stage, element, pinColor, readModel} from "./stage.js";

const $ = (id) => document.getElementById(id);
const MOST_PINS = 6;
const LISTED = 4; // classes that the context of a point is said to come from

const NOTES = {
  [EVEN]: "This map is nearly even: hardly any source counts more than another.",
  [COMMON]: "All neurons of this picture have nearly this map: they choose, but all alike.",
};

const state = {...USUAL, image: 0, pins: [], cursor: null};
let images = [];
let stages = [];
let askOcclusion = null;
let asking = false; // one question of occlusion at a time; the last one counts
let askAgain = false;
let removed = new Map(); // the neurons that were taken away, by model

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
  readAddress();
  for (const name of CHECKED) {
    $(name).addEventListener("change", () => change({[name]: $(name).checked}));
  }
  for (const name of NUMBERS) {
    $(name).addEventListener("input", () => change({[name]: Number($(name).value)}));
  }
  for (const radio of document.querySelectorAll('input[name="mode"]')) {
    radio.addEventListener("change", () => change({mode: radio.value}));
  }
  $("clear").addEventListener("click", () => change({pins: [], cursor: null}));
  $("keep-png").addEventListener("click", async () => save("png", await pictureOf(stages)));
  $("keep-svg").addEventListener("click", () => save("svg", svgOf(stages)));
  $("keep-npz").addEventListener("click", () => save("npz",
    mapsOf(stages, state.pins.length ? state.pins : [state.cursor || middle()], state.reversed)));
  window.addEventListener("hashchange", () => { readAddress(); showImage(); });
  drawImageList();
  await showImage();
}

function change(changes) {
  if (changes.pins) removed = new Map();
  Object.assign(state, changes);
  draw();
  writeAddress();
}

// How an address names a picture: a server by its id, a page of its own by its place.
function keyOfImages() {
  return images.map(({id}, place) => id ?? String(place));
}

function readAddress() {
  const ranges = Object.fromEntries(NUMBERS.map((name) =>
    [name, [Number($(name).min), Number($(name).max)]]));
  const view = parseView(location.hash, keyOfImages(), ranges);
  Object.assign(state, view, {cursor: null, image: Math.max(0, view.image),
    pins: view.pins.slice(0, MOST_PINS)});
  const isGone = view.image < 0 && images.length > 0;
  $("problem").textContent = isGone ? "the picture of this address is not here, or no more" : "";
}

function writeAddress() {
  history.replaceState(null, "", `#${formatView(state, keyOfImages())}`);
}

async function showImage() {
  removed = new Map();
  if (!images.length) return; // until one is dropped
  const chosen = images[state.image];
  let payload;
  try {
    payload = await chosen.load();
  } catch (error) {
    $("problem").textContent = error.message;
    return;
  }
  const models = await Promise.all(payload.models.map(readModel));
  if (chosen !== images[state.image]) return; // another one was chosen meanwhile
  // one color for a name: that of the first model that has it
  const colors = new Map([...models].reverse().flatMap(({classes, palette}) =>
    classes.map((name, label) => [name, palette[label]])));
  for (const model of models) model.palette = model.classes.map((name) => colors.get(name));
  const {width, height, src} = payload.image;
  const inside = ({x, y}) => x >= 0 && y >= 0 && x < width && y < height;
  state.pins = state.pins.filter(inside);
  stages = models.map((model) => new Stage(model, {width, height}, src));
  for (const stage of stages) listen(stage);
  $("stages").replaceChildren(...stages.map((stage) => stage.root));
  $("disagree-label").hidden = stages.length < 2;
  document.body.dataset.image = payload.name;
  const {page} = chosen; // the address of a page of its own, where there is a server
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
  surface.addEventListener("pointerdown", (event) => point(pointOf(event)));
  // a finger that was lifted leaves its map
  surface.addEventListener("pointerleave", ({pointerType}) => pointerType !== "touch" && point(null));
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
  const from = state.cursor || middle();
  if (event.key in moves) {
    const [x, y] = moves[event.key];
    const clip = (value, most) => Math.min(most - 1, Math.max(0, value));
    point({x: clip(from.x + step * x, width), y: clip(from.y + step * y, height)});
    $("announce").textContent = $("here").textContent;
  } else if (event.key === "Enter" || event.key === " ") {
    pin(from);
  } else if (event.key === "Delete" || event.key === "Backspace") {
    change({pins: state.pins.slice(0, -1)});
  } else if (event.key === "Escape") {
    change({pins: []});
  } else {
    return;
  }
  event.preventDefault();
}

function draw() {
  for (const name of CHECKED) $(name).checked = state[name];
  for (const name of NUMBERS) $(name).value = state[name];
  for (const radio of document.querySelectorAll('input[name="mode"]')) {
    radio.checked = radio.value === state.mode;
  }
  $("doubt-text").textContent = percent(state.doubt / 100);
  if (!stages.length) return; // its picture has not come
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
    button.setAttribute("aria-pressed", String(button.dataset.name === state.only));
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
    let found = {};
    if (state.mode === "classes") stage.hideMap();
    else {
      const view = {mode: state.mode, reversed: state.reversed, other};
      if (!state.cursor) view.removed = removed.get(stage.model.name);
      found = stage.drawMap(shown, view);
    }
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

// The model that words are about: the first that has maps.
function described() {
  return stages.find((one) => one.model.factors) || stages[0];
}

function drawHere(shown) {
  if (!shown || !stages.length) {
    $("here").textContent = "Point at the picture.";
    $("sources").replaceChildren();
    return;
  }
  const stage = described();
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

// The classes that a model found, with the areas that each model gives them.
function drawClasses() {
  const areas = (name) => stages.map(({model}) => model.areas[model.classes.indexOf(name)] || 0);
  const names = [...new Set(stages.flatMap(({model}) => model.classes))]
    .filter((name) => areas(name).some((area) => area > 0))
    .sort((one, other) => Math.max(...areas(other)) - Math.max(...areas(one)));
  $("classes").replaceChildren(...names.map((name) => {
    const {model} = stages.find((stage) => stage.model.classes.includes(name));
    const button = element("button");
    button.dataset.name = name;
    const swatch = element("span", "swatch");
    swatch.style.background = model.palette[model.classes.indexOf(name)];
    button.append(swatch, element("span", "", name),
      element("span", "number", areas(name).map(percent).join(" / ")));
    button.addEventListener("click", () => change({only: state.only === name ? null : name}));
    const line = element("li");
    line.append(button);
    return line;
  }));
}

function drawPinList() {
  $("no-pins").hidden = state.pins.length > 0;
  $("clear").hidden = !state.pins.length;
  const stage = described();
  $("pins").replaceChildren(...state.pins.map((place, number) => {
    const line = element("li");
    const small = element("canvas");
    stage.drawMap(place, {mode: "shares", reversed: state.reversed});
    [small.height, small.width] = stage.model.grid.map;
    if (stage.model.factors) small.getContext("2d").drawImage(stage.map, -1, -1);
    small.style.borderColor = pinColor(number);
    const {label, confidence} = stage.pixelAt(place);
    const from = stage.sources(place).slice(0, 3)
      .map(({label: source, part}) => `${percent(part)}\u00a0${stage.model.classes[source]}`);
    const text = element("div");
    text.append(element("b", "", `${number + 1}: ${stage.model.classes[label]}`),
      ` ${percent(confidence)}`, element("br"), from.join(", "));
    const remove = element("button", "remove", "×");
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
  $("part-text").textContent = percent(state.part / 100);
  if ($("occlusion").hidden || state.part === 0) {
    $("after").replaceChildren();
    forgetRemoved();
    return;
  }
  if (asking) {
    askAgain = true;
    return;
  }
  asking = true;
  let lines;
  try {
    const answers = await Promise.all(shown.map((stage) => {
      const {row, column} = stage.neuronAt(place);
      return askOcclusion(images[state.image], stage.model.name, row, column, state.part / 100);
    }));
    lines = answers.flatMap((answer, at) =>
      occlusionLines(answer, shown.length > 1 ? shown[at].model.name : ""));
    removed = new Map(answers.map((one, at) => [shown[at].model.name, new Set(one.removed)]));
  } catch (error) {
    lines = [element("li", "", error.message)];
    removed = new Map();
  }
  asking = false;
  if (askAgain) { // the pins or the slider have moved meanwhile
    askAgain = false;
    drawOcclusion();
    return;
  }
  $("after").replaceChildren(...lines);
  drawMaps();
}

function forgetRemoved() {
  if (!removed.size) return;
  removed = new Map();
  drawMaps();
}

// The likeliest classes, before and after.
function occlusionLines({before, after}, model) {
  const likely = Object.keys(before).map((name) => [name, Math.max(before[name], after[name])])
    .sort(([, one], [, other]) => other - one).slice(0, 3).filter(([, most]) => most >= 0.01);
  const lines = likely.map(([name]) => {
    const line = element("li");
    line.append(element("span", "", name),
      element("span", "number", `${percent(before[name])} → ${percent(after[name])}`));
    return line;
  });
  if (model) lines[0].prepend(element("b", "", model));
  return lines;
}

function middle() {
  const {width, height} = stages[0].picture;
  return {x: Math.floor(width / 2), y: Math.floor(height / 2)};
}

function percent(part) {
  // the number and its sign are never parted
  return part > 0 && part < 0.01 ? "<1\u00a0%" : `${Math.round(100 * part)}\u00a0%`;
}
