// The state of a view as the address of the page holds it.

const MODES = ["shares", "coefficients", "difference", "classes"];
// what an address may leave out; only: the name of a class; part: of the sources taken away
export const USUAL = {mode: "shares", reversed: false, opacity: 55, only: null, doubtful: false,
  doubt: 50, disagree: false, part: 0};
export const CHECKED = ["reversed", "doubtful", "disagree"];
export const NUMBERS = ["opacity", "doubt", "part"];

// hash: of the address; keys: of the pictures; ranges: {name: [least, most]}. What does not fit is
// as usual. `image` is -1 where the picture is none of these: then its pins mean nothing.
export function parseView(hash, keys, ranges) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const view = {...USUAL, image: given.has("image") ? keys.indexOf(given.get("image")) : 0, pins: []};
  for (const name of NUMBERS) {
    const [least, most] = ranges[name];
    const value = Math.min(most, Math.max(least, Number(given.get(name))));
    if (given.has(name) && Number.isFinite(value)) view[name] = value;
  }
  for (const name of CHECKED) view[name] = given.get(name) === "1";
  if (MODES.includes(given.get("mode"))) view.mode = given.get("mode");
  if (given.has("class")) view.only = given.get("class");
  if (view.image >= 0) {
    view.pins = (given.get("pins") || "").split(";").filter(Boolean)
      .map((text) => text.split(",").map(Number))
      .filter((pair) => pair.length === 2 && pair.every(Number.isFinite)).map(([x, y]) => ({x, y}));
  }
  return view;
}

export function formatView(state, keys) {
  const view = new URLSearchParams();
  if (keys.length > 1) view.set("image", keys[state.image]);
  const pins = state.pins.map(({x, y}) => `${Math.round(x)},${Math.round(y)}`).join(";");
  if (pins) view.set("pins", pins);
  for (const name of ["mode", ...NUMBERS]) {
    if (state[name] !== USUAL[name]) view.set(name, state[name]);
  }
  for (const name of CHECKED) if (state[name]) view.set(name, "1");
  if (state.only !== null) view.set("class", state.only);
  return view.toString();
}
