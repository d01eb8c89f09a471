// The view as a file: all stages side by side, as PNG and as SVG, and maps as numbers.

import {encodeNpz} from "./arrays.js";

const GAP = 12;
const LINE = 28; // of the captions

// What lies over a stage's photograph: its map, else its classes.
function layerOf(stage) {
  const {width, height} = stage.picture;
  const isMapped = stage.root.classList.contains("mapped");
  if (!isMapped) {
    const opacity = Number(stage.labels.style.opacity);
    return {canvas: stage.labels, box: [0, 0, width, height], opacity};
  }
  const part = (name) => parseFloat(stage.map.style[name]) / 100;
  const box = [part("left") * width, part("top") * height, part("width") * width,
    part("height") * height];
  const isDiverging = stage.root.classList.contains("diverging");
  const look = isDiverging ? {opacity: 0.8} : {opacity: 1, blend: "screen"};
  return {canvas: stage.map, box, gray: true, ...look};
}

function size(stages) {
  const widths = stages.map(({picture}) => picture.width + GAP);
  const height = Math.max(...stages.map(({picture}) => picture.height)) + LINE;
  return [widths.reduce((sum, one) => sum + one, -GAP), height];
}

export async function pictureOf(stages) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = size(stages);
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  let left = 0;
  for (const stage of stages) {
    const {width, height} = stage.picture;
    const layer = layerOf(stage);
    context.save();
    context.translate(left, 0);
    context.beginPath();
    context.rect(0, 0, width, height);
    context.clip();
    if (layer.gray) context.filter = "grayscale(1) brightness(0.55)";
    context.drawImage(stage.photograph, 0, 0, width, height);
    context.filter = "none";
    context.globalAlpha = layer.opacity;
    context.globalCompositeOperation = layer.blend || "source-over";
    context.drawImage(layer.canvas, ...layer.box);
    context.globalAlpha = 1;
    context.globalCompositeOperation = "source-over";
    context.drawImage(await drawn(stage.pins, width, height), 0, 0);
    context.restore();
    context.fillStyle = "#1b1b1b";
    context.font = "18px system-ui, sans-serif";
    context.fillText(stage.caption.textContent, left, height + 21, width);
    left += width + GAP;
  }
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

async function drawn(svg, width, height) {
  const copy = svg.cloneNode(true);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  return image;
}

export function svgOf(stages) {
  const [width, height] = size(stages);
  const parts = [`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}">`,
    '<filter id="gray"><feColorMatrix type="saturate" values="0"/>' +
    '<feComponentTransfer>' + ["R", "G", "B"].map((channel) =>
      `<feFunc${channel} type="linear" slope="0.55"/>`).join("") + "</feComponentTransfer></filter>"];
  let left = 0;
  for (const stage of stages) {
    const {width: own, height: high} = stage.picture;
    const layer = layerOf(stage);
    const image = (href, [x, y, wide, tall], more) =>
      `<image href="${href}" x="${x}" y="${y}" width="${wide}" height="${tall}" ` +
      `preserveAspectRatio="none" ${more}/>`;
    parts.push(`<svg x="${left}" width="${own}" height="${high}" viewBox="0 0 ${own} ${high}">`,
      image(stage.photograph.src, [0, 0, own, high], layer.gray ? 'filter="url(#gray)"' : ""),
      image(layer.canvas.toDataURL(), layer.box, `opacity="${layer.opacity}" ` +
        `style="mix-blend-mode:${layer.blend || "normal"}"`),
      stage.pins.innerHTML, "</svg>");
    const text = new XMLSerializer().serializeToString(
      document.createTextNode(stage.caption.textContent));
    parts.push(`<text x="${left}" y="${high + 21}" font-size="18" ` +
      `font-family="system-ui, sans-serif">${text}</text>`);
    left += own + GAP;
  }
  return new Blob([...parts, "</svg>"], {type: "image/svg+xml"});
}

// The maps of some places, of every model that has some, as arrays of an .npz file.
export function mapsOf(stages, places, reversed) {
  const arrays = {};
  for (const [number, stage] of stages.entries()) {
    if (!stage.model.factors) continue;
    const size = stage.model.grid.map[0] * stage.model.grid.map[1];
    const maps = new Float32Array(places.length * size);
    places.forEach((place, index) =>
      maps.set(stage.mapValues(place, {mode: "shares", reversed}).values, index * size));
    const neurons = places.map((place) => stage.neuronAt(place));
    const suffix = number ? `_${number + 1}` : "";
    arrays[`maps${suffix}`] = {values: maps, shape: [places.length, ...stage.model.grid.map]};
    arrays[`neurons${suffix}`] = {shape: [places.length, 2],
      values: Int32Array.from(neurons.flatMap(({row, column}) => [row, column]))};
  }
  return new Blob([encodeNpz(arrays)], {type: "application/octet-stream"});
}

// Give a file to the visitor, named after the picture.
export function save(kind, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${document.body.dataset.image.replace(/\.[^.]*$/, "")}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
