// The layers of a phase: a row per level, each node as wide as its share of what it stands in.
import type { Layers } from "./data";
import { element } from "./dom";
import { formatBytes, formatMetric, formatPs, formatRatio } from "./format";

type Measure = "self_ps" | "flop" | "bytes";
const MEASURES: [Measure, string][] = [["self_ps", "time"], ["flop", "flop"], ["bytes", "bytes"]];
const ROW = 24;

export function drawIcicle(host: HTMLElement, layers: Layers): void {
  const children = layers.name.map(() => [] as number[]);
  const depth = layers.name.map(() => 0);
  layers.parent.forEach((parent, i) => {
    if (parent !== null) { children[parent].push(i); depth[i] = depth[parent] + 1; }
  });
  let measure: Measure = "self_ps", root = 0, focus = 0;
  const tree = element("div", { class: "icicle", role: "tree", "aria-label": "Layers" });
  const line = element("p", { class: "icicle-line dim", role: "status" });
  const modes = element("div", { class: "modes", role: "group", "aria-label": "Width stands for" });
  for (const [key, name] of MEASURES) {
    if (!layers[key][0]) continue;
    const choose = element("button", { type: "button", "aria-pressed": String(key === measure) }, name);
    choose.addEventListener("click", () => {
      measure = key;
      for (const other of modes.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === choose));
      draw();
    });
    modes.append(choose);
  }
  host.append(modes, tree, line);

  function describe(i: number): string {
    const costs = [`${formatPs(layers.self_ps[i])}, ${formatRatio(layers.self_ps[i] / (layers.self_ps[0] || 1))} of the time`];
    if (layers.flop[i]) costs.push(formatMetric(layers.flop[i], "flop"));
    if (layers.bytes[i]) costs.push(formatBytes(layers.bytes[i]));
    const path: string[] = [];
    for (let at: number | null = i; at !== null; at = layers.parent[at]) path.unshift(layers.name[at]);
    return `${path.slice(i === 0 ? 0 : 1).join(" / ")}: ${costs.join(" · ")}`;
  }

  function draw(): void {
    tree.replaceChildren();
    const above: number[] = [];
    for (let at = layers.parent[root]; at !== null; at = layers.parent[at]) above.unshift(at);
    above.forEach((i, row) => place(i, 0, 1, row));
    layOut(root, 0, 1, above.length);
    const deepest = Math.max(...[...tree.children].map((node) => Number((node as HTMLElement).dataset.row)));
    tree.style.height = `${(deepest + 1) * ROW}px`;
    line.textContent = describe(focus);
  }

  function layOut(i: number, from: number, width: number, row: number): void {
    place(i, from, width, row);
    const total = layers[measure][i];
    if (!total) return;
    let left = from;
    const order = [...children[i]].sort((a, b) => layers[measure][b] - layers[measure][a]);
    for (const child of order) {
      const share = width * layers[measure][child] / total;
      if (share > 0.0015) layOut(child, left, share, row + 1);
      left += share;
    }
  }

  function place(i: number, left: number, width: number, row: number): void {
    const node = element("div", {
      class: layers.is_op[i] ? "node op" : "node", role: "treeitem", tabindex: i === focus ? "0" : "-1",
      "aria-label": describe(i), "aria-level": String(depth[i] + 1), "aria-selected": String(i === root), title: describe(i),
    }, element("span", {}, layers.name[i]));
    node.dataset.node = String(i);
    node.dataset.row = String(row);
    node.style.left = `${100 * left}%`;
    node.style.width = `${100 * width}%`;
    node.style.top = `${row * ROW}px`;
    if (row < 6) node.dataset.depth = String(Math.min(depth[i], 5));
    tree.append(node);
  }

  const nodeOf = (event: Event) => (event.target as HTMLElement).closest<HTMLElement>(".node");
  const zoom = (i: number) => {
    root = i === root && layers.parent[i] !== null ? layers.parent[i]! : i;
    draw();
    move(i);
  };
  function move(i: number): void {
    for (const node of tree.children) (node as HTMLElement).tabIndex = -1;
    const node = tree.querySelector<HTMLElement>(`[data-node="${i}"]`);
    if (!node) return;
    focus = i;
    node.tabIndex = 0;
    node.focus();
    line.textContent = describe(i);
  }
  tree.addEventListener("click", (event) => { const node = nodeOf(event); if (node) zoom(Number(node.dataset.node)); });
  tree.addEventListener("mouseover", (event) => { const node = nodeOf(event); if (node) line.textContent = describe(Number(node.dataset.node)); });
  tree.addEventListener("mouseleave", () => { line.textContent = describe(focus); });
  tree.addEventListener("keydown", (event) => {
    const i = focus, parent = layers.parent[i];
    const siblings = parent === null ? [i] : [...children[parent]].sort((a, b) => layers[measure][b] - layers[measure][a]);
    const steps: Record<string, number | null | undefined> = {
      ArrowDown: [...children[i]].sort((a, b) => layers[measure][b] - layers[measure][a])[0], ArrowUp: parent,
      ArrowRight: siblings[siblings.indexOf(i) + 1], ArrowLeft: siblings[siblings.indexOf(i) - 1],
    };
    if (event.key === "Enter" || event.key === " ") zoom(i);
    else if (event.key in steps) { const to = steps[event.key]; if (to !== null && to !== undefined) move(to); }
    else return;
    event.preventDefault();
  });
  draw();
}
