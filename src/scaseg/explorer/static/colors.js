// Colors of maps that are read alike with every kind of color vision, and of pins.

// magma: equal steps look equal, and brightness alone says it all
const HEAT = ["#000004", "#180f3d", "#440f76", "#721f81", "#9e2f7f", "#cd4071", "#f1605d",
  "#fd9668", "#feca8d", "#fcfdbf"];
// less: blue, even: white, more: orange
const DIVERGING = ["#053061", "#2166ac", "#4393c3", "#92c5de", "#f7f7f7", "#fdb863", "#e08214",
  "#b35806", "#7f3b08"];
// Okabe and Ito's colors, without those that the heat has
export const PIN_COLORS = ["#56b4e9", "#009e73", "#f0e442", "#e69f00", "#0072b2", "#d55e00"];

const GRAY = [128, 128, 128];
const WHITE = [255, 255, 255];
const BLUE = [86, 180, 233]; // which the heat has not

export function parseColor(text) {
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

function table(stops) {
  const colors = stops.map(parseColor);
  return Array.from({length: 256}, (_, level) => {
    const place = (level / 255) * (colors.length - 1);
    const low = Math.min(Math.floor(place), colors.length - 2);
    return colors[low].map((from, channel) =>
      Math.round(from + (colors[low + 1][channel] - from) * (place - low)));
  });
}

export const HEAT_TABLE = table(HEAT);
export const DIVERGING_TABLE = table(DIVERGING);

// The upper end of a map's scale: its largest values but a few, and never less than twice the
// average, so that a map that is nearly even looks even.
export function scaleTop(row, even) {
  const sorted = Float32Array.from(row).sort();
  return Math.max(2 * even, sorted[Math.floor(0.995 * (sorted.length - 1))]);
}

// A map (n) as RGBA bytes; own: the neuron itself, which is gray where it takes no part; removed:
// a set of neurons that were taken away, which are blue.
export function paintMap(row, {low = 0, top, table: colors = HEAT_TABLE, own = -1, removed = null}) {
  const pixels = new Uint8ClampedArray(4 * row.length).fill(255);
  const scale = 255 / (top - low || 1);
  for (let j = 0; j < row.length; j++) {
    const level = Math.min(255, Math.max(0, Math.round((row[j] - low) * scale) || 0));
    const color = j === own ? GRAY : removed && removed.has(j) ? BLUE : colors[level];
    for (let channel = 0; channel < 3; channel++) pixels[4 * j + channel] = color[channel];
  }
  return pixels;
}

// Labels (H * W) as RGBA bytes; only: the one class to show; rising, falling: functions of a pixel,
// which is hatched in this direction.
export function paintLabels(labels, palette, width, {only = null, rising = null, falling = null} = {}) {
  const colors = palette.map(parseColor);
  const pixels = new Uint8ClampedArray(4 * labels.length);
  for (let at = 0; at < labels.length; at++) {
    if (only !== null && labels[at] !== only) continue;
    const [x, y] = [at % width, Math.floor(at / width)];
    const hatched = (rising && rising(at) && (x + y) % 8 < 3) ||
      (falling && falling(at) && (x + 7 * y) % 8 < 3);
    const color = hatched ? WHITE : colors[labels[at]];
    for (let channel = 0; channel < 3; channel++) pixels[4 * at + channel] = color[channel];
    pixels[4 * at + 3] = 255;
  }
  return pixels;
}
