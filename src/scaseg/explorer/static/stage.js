// One model's view of the picture: photograph, classes over it, a map over that, pins on top.

import {decodeArray} from "./arrays.js";
import {DIVERGING_TABLE, PIN_COLORS, paintLabels, paintMap, scaleTop} from "./colors.js";
import {centerOf, coefficientRow, distance, evenShare, mapBox, neuronAt, shareColumn, shareRow,
  sourcesByClass, unevenness} from "./maps.js";

const NEARLY_EVEN = 0.1; // of the context would have to move; as explanation/maps.py has it
export const EVEN = "a nearly even map";
export const COMMON = "all neurons here have nearly this map";
const SVG = "http://www.w3.org/2000/svg";

// The arrays of a model, decoded; `factors` is null where its neurons have no context.
export async function readModel(plain) {
  const model = {...plain, labels: await decodeArray(plain.labels)};
  model.labelSize = plain.labels.shape;
  model.confidence = await decodeArray(plain.confidence);
  model.classOfNeuron = await decodeArray(plain.neurons);
  if (plain.factors) {
    const factors = {...plain.factors, n: plain.grid.map[0] * plain.grid.map[1]};
    for (const name of ["target", "source", "weight", "norm"]) {
      if (factors[name]) factors[name] = await decodeArray(factors[name]);
    }
    factors.width = plain.factors.target ? plain.factors.target.shape.at(-1) : 0;
    model.factors = factors;
  }
  return model;
}

export class Stage {
  constructor(model, picture, source) {
    this.model = model;
    this.picture = picture; // {width, height}
    this.root = element("figure", "stage");
    this.surface = element("div", "surface");
    this.surface.tabIndex = 0;
    this.surface.setAttribute("role", "application");
    this.surface.setAttribute("aria-label",
      `${model.name}: arrow keys move over the picture, Enter pins a point, Escape removes pins`);
    this.surface.style.aspectRatio = `${picture.width} / ${picture.height}`;
    this.photograph = element("img", "photograph");
    this.photograph.src = source;
    this.photograph.alt = "the photograph";
    this.labels = element("canvas", "labels");
    [this.labels.height, this.labels.width] = model.labelSize;
    this.map = element("canvas", "map");
    // a ring of neurons more: beyond the outermost, a map goes on with their values
    [this.map.height, this.map.width] = model.grid.map.map((side) => side + 2);
    const box = mapBox(model.grid, 1);
    for (const [name, part] of Object.entries(box)) this.map.style[name] = `${100 * part}%`;
    this.pins = document.createElementNS(SVG, "svg");
    this.pins.setAttribute("class", "pins");
    this.pins.setAttribute("viewBox", `0 0 ${picture.width} ${picture.height}`);
    this.pins.setAttribute("aria-hidden", "true");
    this.surface.append(this.photograph, this.labels, this.map, this.pins);
    this.caption = element("figcaption");
    this.root.append(this.surface, this.caption);
  }

  neuronAt({x, y}) {
    return neuronAt(this.model.grid, x, y);
  }

  // Class and probability of the pixel (x, y) of the picture.
  pixelAt({x, y}) {
    const [height, width] = this.model.labelSize;
    const row = Math.min(height - 1, Math.floor((y * height) / this.picture.height));
    const column = Math.min(width - 1, Math.floor((x * width) / this.picture.width));
    const at = row * width + column;
    return {label: this.model.labels[at], confidence: this.model.confidence[at] / 255};
  }

  // only: the name of a class, or null; others: models that may disagree, by the names of classes.
  drawLabels({only, doubtful, others, opacity}) {
    const {labels, confidence, palette, classes} = this.model;
    const [height, width] = this.model.labelSize;
    const here = (others || []).map((other) => other.classes.map((name) => classes.indexOf(name)));
    const pixels = paintLabels(labels, palette, width, {
      only: only === null ? null : classes.indexOf(only),
      rising: doubtful === null ? null : (at) => confidence[at] < 255 * doubtful,
      falling: others && ((at) => others.some((other, k) => here[k][other.labels[at]] !== labels[at])),
    });
    this.labels.getContext("2d").putImageData(new ImageData(pixels, width, height), 0, 0);
    this.labels.style.opacity = opacity;
  }

  // The values of a map at a point, by mode; null where the model has none.
  mapValues(point, {mode, reversed, other}) {
    const {factors} = this.model;
    if (!factors) return null;
    const {index} = this.neuronAt(point);
    const row = reversed ? shareColumn : mode === "coefficients" ? coefficientRow : shareRow;
    const values = row(factors, index);
    if (mode !== "difference" || !other) return {values, index};
    const second = this.neuronAt(other).index;
    const away = row(factors, second);
    // the two neurons themselves, of which each is missing in one map, would outshine the rest
    const difference = values.map((value, j) => (j === index || j === second ? 0 : value - away[j]));
    return {values: difference, index, isDifference: true};
  }

  // Draw the map of a point; return what the caption says of it.
  drawMap(point, view) {
    const found = this.mapValues(point, view);
    this.root.classList.toggle("mapped", found !== null);
    if (!found) return {note: this.model.note};
    const {factors, grid} = this.model;
    const {values, index, isDifference} = found;
    const even = evenShare(factors);
    let options;
    if (isDifference) {
      const most = values.reduce((largest, one) => Math.max(largest, Math.abs(one)), 0);
      options = {low: -most, top: most, table: DIVERGING_TABLE};
    } else if (view.mode === "coefficients" && !view.reversed) {
      options = {top: values.reduce((largest, one) => Math.max(largest, one), 0)};
    } else {
      options = {top: scaleTop(values, even)};
    }
    if (factors.excludesSelf && !isDifference) options.own = index;
    if (!isDifference && !view.reversed) options.removed = view.removed;
    this.root.classList.toggle("diverging", Boolean(isDifference));
    this.paint(new ImageData(paintMap(values, options), grid.map[1], grid.map[0]));
    const isPlain = !isDifference && !view.reversed && view.mode === "shares";
    let note = "";
    if (isPlain && unevenness(values, factors) < NEARLY_EVEN) note = EVEN;
    else if (isPlain && this.isCommon()) note = COMMON;
    return {values, top: options.top, even, isDifference, note};
  }

  // Whether neurons all over the picture have nearly one map.
  isCommon() {
    const {factors, grid} = this.model;
    if (this.common === undefined) {
      const places = [0.1, 0.37, 0.63, 0.9].flatMap((part) =>
        [0.1, 0.37, 0.63, 0.9].map((other) =>
          Math.floor(part * grid.map[0]) * grid.map[1] + Math.floor(other * grid.map[1])));
      const rows = places.map((place) => shareRow(factors, place));
      this.common = rows.every((row) => distance(row, rows[0]) < NEARLY_EVEN);
    }
    return this.common;
  }

  paint(image) {
    const context = this.map.getContext("2d");
    const {width, height} = image;
    context.putImageData(image, 1, 1);
    context.drawImage(this.map, 1, 1, width, 1, 1, 0, width, 1);
    context.drawImage(this.map, 1, height, width, 1, 1, height + 1, width, 1);
    context.drawImage(this.map, 1, 0, 1, height + 2, 0, 0, 1, height + 2);
    context.drawImage(this.map, width, 0, 1, height + 2, width + 1, 0, 1, height + 2);
  }

  hideMap() {
    this.root.classList.remove("mapped");
  }

  sources(point) {
    const {factors, classOfNeuron, classes} = this.model;
    if (!factors) return [];
    const row = shareRow(factors, this.neuronAt(point).index);
    return sourcesByClass(row, classOfNeuron, classes.length);
  }

  drawPins(points, cursor) {
    const size = Math.max(this.picture.width, this.picture.height) / 45;
    const marks = points.map((point, number) => ring(point, size, pinColor(number), number + 1));
    if (cursor) marks.push(ring(cursor, 0.6 * size, "#ffffff", ""));
    this.pins.replaceChildren(...marks);
  }

  // The middle of the neuron under a point: where its ring belongs.
  snap(point) {
    const {row, column} = this.neuronAt(point);
    return centerOf(this.model.grid, row, column);
  }
}

export function pinColor(number) {
  return PIN_COLORS[number % PIN_COLORS.length];
}

function ring({x, y}, radius, color, text) {
  const group = document.createElementNS(SVG, "g");
  for (const [width, stroke] of [[radius / 2, "#000000"], [radius / 4, color]]) {
    const circle = document.createElementNS(SVG, "circle");
    const facts = {cx: x + 0.5, cy: y + 0.5, r: radius, fill: "none", stroke, "stroke-width": width};
    for (const [name, value] of Object.entries(facts)) circle.setAttribute(name, value);
    group.append(circle);
  }
  if (text) {
    const label = document.createElementNS(SVG, "text");
    const facts = {x: x + 1.5 * radius, y: y - radius, "font-size": 2 * radius, fill: color,
      stroke: "#000000", "stroke-width": radius / 3, "paint-order": "stroke",
      "font-family": "system-ui, sans-serif", "font-weight": "bold"};
    for (const [name, value] of Object.entries(facts)) label.setAttribute(name, value);
    label.textContent = text;
    group.append(label);
  }
  return group;
}

export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (tag === "button") made.type = "button"; // of no form
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}
