import assert from "node:assert/strict";
import test from "node:test";

import {USUAL, formatView, parseView} from "../../src/scaseg/explorer/static/address.js";
import {fromHalf} from "../../src/scaseg/explorer/static/arrays.js";
import {HEAT_TABLE, paintLabels, paintMap, scaleTop} from
  "../../src/scaseg/explorer/static/colors.js";
import {centerOf, distance, mapBox, neuronAt, shareColumn, shareRow, sourcesByClass, unevenness} from
  "../../src/scaseg/explorer/static/maps.js";

const additive = (target, source, activation = "sigmoid") => {
  const n = target.length;
  const phi = {sigmoid: (z) => 1 / (1 + Math.exp(-z)), relu: (z) => Math.max(z, 0)}[activation];
  const norm = target.map((s, i) =>
    source.reduce((sum, t, j) => sum + (i === j ? 0 : phi(s + t)), 0));
  return {form: "additive", activation, target, source, weight: [1], width: 1, n, norm,
    excludesSelf: true};
};

test("half floats: normal, subnormal, signed, infinite", () => {
  const bits = Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x8000, 0x7c00, 0x3555);
  assert.deepEqual(Array.from(fromHalf(bits).slice(0, 2)), [1, -2]);
  assert.equal(fromHalf(bits)[2], 2 ** -24);
  assert.ok(Object.is(fromHalf(bits)[3], -0));
  assert.equal(fromHalf(bits)[4], Infinity);
  assert.ok(Math.abs(fromHalf(bits)[5] - 1 / 3) < 1e-4);
});

test("rows add up to 1, leave out the neuron itself, and columns are rows turned round", () => {
  const factors = additive([-1, 0, 2, 0.5], [0.3, -2, 1, 4]);
  for (let i = 0; i < 4; i++) {
    const row = shareRow(factors, i);
    assert.ok(Math.abs(row.reduce((sum, one) => sum + one, 0) - 1) < 1e-6);
    assert.equal(row[i], 0);
    row.forEach((value, j) => assert.equal(shareColumn(factors, j)[i], value));
  }
});

test("an exponential row of large scores does not overflow", () => {
  const norm = Math.log(Math.exp(0) + Math.exp(-1)) + 900;
  const factors = {form: "dot", target: [30, 30], source: [30, 30 - 1 / 30], width: 1, n: 2,
    norm: [norm, norm], excludesSelf: false};
  const row = shareRow(factors, 0);
  assert.ok(Math.abs(row[0] / row[1] - Math.E) < 1e-4);
  assert.ok(Math.abs(row[0] + row[1] - 1) < 1e-6);
});

test("a row without any context is 0, not NaN", () => {
  const factors = additive([-5, -5], [1, 2], "relu");
  assert.deepEqual(Array.from(shareRow(factors, 0)), [0, 0]);
});

test("sources by class, largest first", () => {
  const found = sourcesByClass(Float32Array.of(0.5, 0.25, 0, 0.25), [2, 0, 1, 0], 3);
  assert.deepEqual(found, [{label: 0, part: 0.5}, {label: 2, part: 0.5}]);
});

test("pixels and neurons: every neuron is the nearest to its own middle", () => {
  const grid = {image: [61, 83], input: [120, 160], map: [15, 20], stride: 8, offset: 0};
  for (const [row, column] of [[0, 0], [7, 11], [14, 19]]) {
    const {x, y} = centerOf(grid, row, column);
    assert.deepEqual(neuronAt(grid, x, y), {row, column, index: row * 20 + column});
  }
  assert.equal(neuronAt(grid, 1000, -50).index, 19);
  const box = mapBox(grid);
  assert.ok(Math.abs(box.width - 1) < 1e-9 && Math.abs(box.left + 3.5 / 160) < 1e-9);
});

test("an even map is even, whatever the scale", () => {
  const factors = {form: "even", n: 5, norm: [4, 4, 4, 4, 4], width: 0, excludesSelf: true};
  const row = shareRow(factors, 2);
  assert.ok(unevenness(row, factors) < 1e-6);
  assert.equal(scaleTop(row, 0.25), 0.5);
  assert.ok(Math.abs(distance(row, shareRow(factors, 1)) - 0.25) < 1e-6);
});

test("maps and labels are painted as their tables say", () => {
  const pixels = paintMap(Float32Array.of(0, 1, 3, 0.5), {top: 1, own: 3});
  assert.deepEqual(Array.from(pixels.slice(0, 4)), [...HEAT_TABLE[0], 255]);
  assert.deepEqual(Array.from(pixels.slice(4, 12)), [...HEAT_TABLE[255], 255, ...HEAT_TABLE[255], 255]);
  assert.deepEqual(Array.from(pixels.slice(12)), [128, 128, 128, 255]);
  const labels = paintLabels(Uint8Array.of(0, 1), ["#102030", "#ff0000"], 2, {only: 1});
  assert.deepEqual(Array.from(labels), [0, 0, 0, 0, 255, 0, 0, 255]);
});

test("an address holds the whole view, and nothing that does not fit", () => {
  const ranges = {opacity: [0, 100], doubt: [5, 95], part: [0, 95]};
  const view = {...USUAL, image: 1, pins: [{x: 5, y: 7}], mode: "classes", reversed: true,
    doubtful: true, doubt: 80, opacity: 0, part: 25, only: "road & rail", disagree: true};
  assert.deepEqual(parseView(`#${formatView(view, ["a", "b"])}`, ["a", "b"], ranges), view);
  assert.equal(formatView({...USUAL, image: 0, pins: []}, ["a"]), "");
  const odd = parseView("#mode=no&opacity=1e9&doubt=x&pins=1,2;3;a,b&part=-4", ["a"], ranges);
  assert.deepEqual(odd, {...USUAL, image: 0, pins: [{x: 1, y: 2}], opacity: 100});
  const gone = parseView("#image=c&pins=1,2", ["a", "b"], ranges);
  assert.deepEqual([gone.image, gone.pins], [-1, []]);
});

test("a cross: what arrives along rows and columns, as rows and as columns", () => {
  // two rounds on a map of 2 x 3; every neuron takes of its row and its column
  const [n, width, height, rounds] = [6, 3, 2, 2];
  const parts = (length, seed) => Float32Array.from({length}, (_, at) => ((at * seed) % 7) / 7);
  const target = parts(rounds * n * width, 3);
  const source = parts(rounds * n * height, 5);
  const once = (round, i, j) => {
    let sum = 0;
    if (Math.floor(i / width) === Math.floor(j / width)) sum += target[(round * n + i) * width + j % width];
    if (i % width === j % width) sum += source[(round * n + i) * height + Math.floor(j / width)];
    return sum;
  };
  const factors = {form: "cross", n, width, target, source, norm: new Array(n).fill(2)};
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let k = 0; k < n; k++) sum += once(1, i, k) * once(0, k, j);
      assert.ok(Math.abs(shareRow(factors, i)[j] - sum / 2) < 1e-5);
      assert.ok(Math.abs(shareColumn(factors, j)[i] - sum / 2) < 1e-5);
    }
  }
});
