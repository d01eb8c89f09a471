// Dependency maps, computed in the browser from what the context is made of.
//
// A context has n neurons on a grid of rows x columns. `factors` says how the coefficient a_ij of
// source j for target i follows from an array for targets and one for sources, each (n, R):
//   even      1
//   additive  sum over r of weight_r phi(target_ir + source_jr)
//   dot       exp(sum over r of target_ir source_jr)
//   mixture   sum over r of target_ir source_jr
//   matrix    target_ij, the coefficients themselves
//   cross     rounds of target (n, columns), what a neuron takes of its row, and source (n, rows),
//             of its column; a_ij is what of j arrives at i after all of them
// `weight` is (R), or (n, R): of each target its own. `norm` (n) holds the sum of every row: a share
// is a coefficient over it. Where rows may overflow (dot, and additive with exp) it is its logarithm.

const PHI = {
  identity: (z) => z,
  exp: Math.exp,
  relu: (z) => (z > 0 ? z : 0),
  sigmoid: (z) => 1 / (1 + Math.exp(-z)),
  softplus: (z) => (z > 30 ? z : Math.log1p(Math.exp(z))),
};

export function isLogarithmic(factors) {
  return factors.form === "dot" || factors.activation === "exp";
}

// The coefficient of source j for target i, multiplied by e^-shift where that is possible.
function coefficient(factors, i, j, shift) {
  const {form, target, source, width} = factors;
  const a = i * width;
  const b = j * width;
  if (form === "even") return 1;
  if (form === "matrix") return target[a + j];
  let sum = 0;
  if (form === "additive") {
    const phi = PHI[factors.activation];
    const own = factors.weight.length > width ? a : 0;
    for (let r = 0; r < width; r++) {
      sum += factors.weight[own + r] * phi(target[a + r] + source[b + r] - shift);
    }
    return sum;
  }
  for (let r = 0; r < width; r++) sum += target[a + r] * source[b + r];
  return form === "dot" ? Math.exp(sum - shift) : sum;
}

function share(factors, i, j) {
  if (i === j && factors.excludesSelf) return 0;
  const norm = factors.norm[i];
  if (isLogarithmic(factors)) return coefficient(factors, i, j, norm);
  return norm === 0 ? 0 : coefficient(factors, i, j, 0) / norm;
}

// Row i of the product of all rounds, (n); turned: its column.
function crossRow({n, width, target, source}, i, turned = false) {
  const height = n / width;
  const rounds = target.length / (n * width);
  let weights = new Float32Array(n);
  weights[i] = 1;
  for (let round = 0; round < rounds; round++) {
    const step = turned ? round : rounds - 1 - round;
    const next = new Float32Array(n);
    for (let at = 0; at < n; at++) {
      if (!turned && weights[at] === 0) continue;
      const column = at % width;
      const start = at - column;
      const ofRow = (step * n + at) * width;
      const ofColumn = (step * n + at) * height;
      for (let v = 0; v < width; v++) {
        if (turned) next[at] += target[ofRow + v] * weights[start + v];
        else next[start + v] += target[ofRow + v] * weights[at];
      }
      for (let v = 0; v < height; v++) {
        if (turned) next[at] += source[ofColumn + v] * weights[v * width + column];
        else next[v * width + column] += source[ofColumn + v] * weights[at];
      }
    }
    weights = next;
  }
  return weights;
}

// What neuron i depends on: the share of every source, (n).
export function shareRow(factors, i) {
  if (factors.form === "cross") return crossRow(factors, i).map((one) => one / factors.norm[i]);
  return Float32Array.from({length: factors.n}, (_, j) => share(factors, i, j));
}

// Who depends on neuron j: its share in the context of every target, (n).
export function shareColumn(factors, j) {
  if (factors.form === "cross") {
    return crossRow(factors, j, true).map((one, i) => one / factors.norm[i]);
  }
  return Float32Array.from({length: factors.n}, (_, i) => share(factors, i, j));
}

// The coefficients of neuron i, (n); exp rows are scaled so that the largest is 1.
export function coefficientRow(factors, i) {
  if (factors.form === "cross") return crossRow(factors, i);
  let shift = 0;
  if (isLogarithmic(factors)) {
    const largest = shareRow(factors, i).reduce((most, one) => Math.max(most, one), 0);
    shift = factors.norm[i] + Math.log(largest || 1);
  }
  return Float32Array.from({length: factors.n}, (_, j) =>
    i === j && factors.excludesSelf ? 0 : coefficient(factors, i, j, shift));
}

// The share that every source would have if all counted alike.
export function evenShare(factors) {
  return 1 / Math.max(1, factors.n - (factors.excludesSelf ? 1 : 0));
}

// How far a map is from even: 0 even, 1 all on one source (total variation distance).
export function unevenness(row, factors) {
  const even = evenShare(factors);
  let sum = 0;
  for (const value of row) sum += Math.abs(value - even);
  return Math.max(0, sum - (factors.excludesSelf ? even : 0)) / 2;
}

// How far two maps are apart: 0 the same, 1 nothing in common (total variation distance).
export function distance(one, other) {
  let sum = 0;
  for (let j = 0; j < one.length; j++) sum += Math.abs(one[j] - other[j]);
  return sum / 2;
}

// The part of a map that lies on neurons of each class: [{label, part}], largest first.
export function sourcesByClass(row, classOfNeuron, classes) {
  const parts = new Float64Array(classes);
  let total = 0;
  row.forEach((value, j) => {
    parts[classOfNeuron[j]] += Math.abs(value);
    total += Math.abs(value);
  });
  return Array.from(parts, (part, label) => ({label, part: total ? part / total : 0}))
    .filter(({part}) => part > 0)
    .sort((one, other) => other.part - one.part);
}

// The neuron nearest to a pixel (x, y) of the picture; the same as NeuronGrid.neuron_at in Python.
export function neuronAt(grid, x, y) {
  const [row, column] = [[y, 0], [x, 1]].map(([pixel, axis]) => {
    const ofInput = ((pixel + 0.5) * grid.input[axis]) / grid.image[axis] - 0.5;
    const position = (ofInput - grid.offset) / grid.stride;
    return Math.floor(Math.min(Math.max(position, 0), grid.map[axis] - 1) + 0.5);
  });
  return {row, column, index: row * grid.map[1] + column};
}

// The middle of a neuron's receptive field, as a pixel of the picture.
export function centerOf(grid, row, column) {
  const [y, x] = [row, column].map((place, axis) =>
    ((grid.offset + grid.stride * place + 0.5) * grid.image[axis]) / grid.input[axis] - 0.5);
  return {x, y};
}

// Where the map, with a border of so many neurons, lies on the picture, in parts of its sides.
export function mapBox(grid, border = 0) {
  const [top, left] = [0, 1].map((axis) =>
    (grid.offset + 0.5 - grid.stride * (border + 0.5)) / grid.input[axis]);
  const [height, width] = [0, 1].map((axis) =>
    ((grid.map[axis] + 2 * border) * grid.stride) / grid.input[axis]);
  return {left, top, width, height};
}
