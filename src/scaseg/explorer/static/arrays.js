// Arrays as the page gets them: base64 of zlib of little-endian numbers, with dtype and shape.

const KINDS = {uint8: Uint8Array, uint16: Uint16Array, float16: Uint16Array, float32: Float32Array};

export async function decodeArray({dtype, shape, data}) {
  const packed = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const values = new KINDS[dtype](await new Response(stream).arrayBuffer());
  const expected = shape.reduce((product, side) => product * side, 1);
  if (values.length !== expected) throw new Error(`${values.length} numbers, not ${expected}`);
  return dtype === "float16" ? fromHalf(values) : values;
}

// 16-bit floats as 32-bit ones: not every browser has Float16Array
export function fromHalf(bits) {
  const values = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) {
    const exponent = (bits[i] >> 10) & 31;
    const fraction = bits[i] & 1023;
    let size = (1 + fraction / 1024) * 2 ** (exponent - 15);
    if (exponent === 0) size = (fraction / 1024) * 2 ** -14;
    else if (exponent === 31) size = fraction ? NaN : Infinity;
    values[i] = bits[i] & 0x8000 ? -size : size;
  }
  return values;
}

// Arrays by name -> the bytes of an .npz file: a zip of uncompressed .npy members.
export function encodeNpz(arrays) {
  const parts = [];
  const entries = [];
  let offset = 0;
  for (const [name, {values, shape}] of Object.entries(arrays)) {
    const member = encodeNpy(values, shape);
    const file = new TextEncoder().encode(`${name}.npy`);
    const facts = [20, 0, 0, 0, 0x21, crc32(member), member.length, member.length, file.length, 0];
    const head = zipHeader(0x04034b50, facts);
    entries.push({file, facts, offset});
    parts.push(head, file, member);
    offset += head.length + file.length + member.length;
  }
  const start = offset;
  for (const entry of entries) {
    const head = centralHeader(entry);
    parts.push(head, entry.file);
    offset += head.length + entry.file.length;
  }
  const end = new DataView(new ArrayBuffer(22));
  end.setUint32(0, 0x06054b50, true);
  end.setUint16(8, entries.length, true);
  end.setUint16(10, entries.length, true);
  end.setUint32(12, offset - start, true);
  end.setUint32(16, start, true);
  parts.push(new Uint8Array(end.buffer));
  const whole = new Uint8Array(offset + 22);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function encodeNpy(values, shape) {
  const kind = values instanceof Float32Array ? "<f4" : "<i4";
  const sides = shape.join(", ") + (shape.length === 1 ? "," : "");
  let head = `{'descr': '${kind}', 'fortran_order': False, 'shape': (${sides}), }`;
  head += " ".repeat(63 - ((10 + head.length) % 64)) + "\n";
  const bytes = new Uint8Array(10 + head.length + 4 * values.length);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, head.length & 255, head.length >> 8]);
  bytes.set(new TextEncoder().encode(head), 10);
  bytes.set(new Uint8Array(values.buffer, values.byteOffset, 4 * values.length), 10 + head.length);
  return bytes;
}

// version, flags, method, time, date, crc, packed, plain, length of the name, extra
function zipHeader(signature, facts) {
  const view = new DataView(new ArrayBuffer(30));
  view.setUint32(0, signature, true);
  writeFacts(view, 4, facts);
  return new Uint8Array(view.buffer);
}

function centralHeader({facts, offset}) {
  const view = new DataView(new ArrayBuffer(46));
  view.setUint32(0, 0x02014b50, true);
  view.setUint16(4, 20, true);
  writeFacts(view, 6, facts);
  view.setUint32(42, offset, true);
  return new Uint8Array(view.buffer);
}

function writeFacts(view, at, facts) {
  facts.forEach((fact, index) => {
    const wide = index >= 5 && index <= 7;
    if (wide) view.setUint32(at, fact, true);
    else view.setUint16(at, fact, true);
    at += wide ? 4 : 2;
  });
}

function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
