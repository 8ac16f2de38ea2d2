// Where the boxes of a graph go: in layers from left to right, each as far left as its inputs let
// it be, ordered within a layer so that few edges cross. An edge that passes layers has a place in
// each of them, so that no box lies on it.

const SWEEPS = 8;

// `nodes`: [{id, inputs}]; `size`: {width, height, across, down} of a box and of the gaps.
// Gives {boxes: Map id -> {x, y}, edges: [{from, to, points}], width, height}.
export function layered(nodes, size) {
  const known = new Map(nodes.map((node) => [node.id, node]));
  const layerOf = new Map();
  const depth = (id) => {
    if (!layerOf.has(id)) {
      layerOf.set(id, 0); // Also ends what would go round.
      const inputs = known.get(id).inputs.filter((each) => known.has(each));
      layerOf.set(id, Math.max(-1, ...inputs.map(depth)) + 1);
    }
    return layerOf.get(id);
  };
  nodes.forEach((node) => depth(node.id));

  const layers = [];
  const put = (place, layer) => (layers[layer] ??= []).push(place);
  const places = new Map();
  for (const node of nodes) {
    const place = { id: node.id, before: [], after: [], height: size.height };
    places.set(node.id, place);
    put(place, layerOf.get(node.id));
  }
  const edges = [];
  for (const node of nodes) {
    for (const input of node.inputs.filter((each) => known.has(each))) {
      const way = [places.get(input)];
      for (let layer = layerOf.get(input) + 1; layer < layerOf.get(node.id); layer += 1) {
        const bend = { id: null, before: [], after: [], height: 0 };
        put(bend, layer);
        way.push(bend);
      }
      way.push(places.get(node.id));
      for (let at = 1; at < way.length; at += 1) {
        way[at].before.push(way[at - 1]);
        way[at - 1].after.push(way[at]);
      }
      edges.push({ from: input, to: node.id, way });
    }
  }

  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const layer of forward ? layers : [...layers].reverse()) {
      layers.forEach((each) => each.forEach((place, at) => (place.at = at)));
      const centre = (place) => {
        const near = forward ? place.before : place.after;
        return near.length ? near.reduce((sum, each) => sum + each.at, 0) / near.length : place.at;
      };
      layer.map((place) => [centre(place), place]).sort((a, b) => a[0] - b[0]).forEach(([, place], at) => (layer[at] = place));
    }
  }

  const heights = layers.map((layer) => layer.reduce((sum, place) => sum + place.height + size.down, -size.down));
  const height = Math.max(0, ...heights);
  layers.forEach((layer, number) => {
    let y = (height - heights[number]) / 2;
    for (const place of layer) {
      place.x = number * (size.width + size.across);
      place.y = y;
      y += place.height + size.down;
    }
  });
  return {
    boxes: new Map([...places].map(([id, { x, y }]) => [id, { x, y }])),
    edges: edges.map(({ from, to, way }) => ({ from, to, path: drawn(way, size) })),
    width: Math.max(0, layers.length * (size.width + size.across) - size.across),
    height,
  };
}

function drawn(way, size) {
  const middle = (place) => place.y + place.height / 2;
  let path = "";
  for (let at = 1; at < way.length; at += 1) {
    const [a, b] = [way[at - 1], way[at]];
    const from = a.x + size.width;
    const half = (from + b.x) / 2;
    path += at === 1 ? `M${from} ${middle(a)}` : `L${from} ${middle(a)}`;
    path += `C${half} ${middle(a)} ${half} ${middle(b)} ${b.x} ${middle(b)}`;
  }
  return path;
}
