"use strict";
// Draws nothing that was not computed before: it moves the lanes' view boxes, labels the axis and shows ready texts.
(() => {
  const root = document.getElementById("timeline");
  if (!root) return;
  const data = JSON.parse(document.getElementById("data").textContent);
  const lanes = [...root.querySelectorAll("svg.zoom")];
  const axis = root.querySelector("svg.axis");
  const cursor = root.querySelector(".cursor");
  const tip = root.querySelector(".tip");
  const view = { low: 0, high: data.units };
  const LEAST = data.units / 5000;
  const SMALL = [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"]];
  const LARGE = [[60, "min", [1, 2, 5, 10, 15, 30]], [3600, "h", [1, 2, 3, 6, 12]], [86400, "d", [1, 2, 5, 10, 20, 50]]];

  function show(low, high) {
    const width = Math.min(Math.max(high - low, LEAST), data.units);
    view.low = Math.min(Math.max(low, 0), data.units - width);
    view.high = view.low + width;
    for (const lane of lanes) {
      const height = lane.viewBox.baseVal.height;
      lane.setAttribute("viewBox", `${view.low} 0 ${width} ${height}`);
    }
    label();
  }

  // The smallest round step that keeps labels apart, with the unit in which its labels are short.
  function stepOf(seconds, high) {
    if (seconds > 30) {
      for (const [size, unit, steps] of LARGE) {
        const found = steps.find((step) => step * size >= seconds * 0.999);
        if (found) return [found * size, size, unit];
      }
    }
    const power = 10 ** Math.floor(Math.log10(seconds));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= seconds * 0.999);
    const [size, unit] = SMALL.findLast(([size]) => size <= high) || SMALL[0];
    return [step, size, unit];
  }

  function label() {
    const perUnit = data.end_s / data.units;
    const low = view.low * perUnit, high = view.high * perUnit;
    const room = Math.max(axis.clientWidth / 110, 2);
    const [step, size, unit] = stepOf((high - low) / room, high);
    axis.replaceChildren();
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); i++) {
      const share = (i * step - low) / (high - low);
      const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      text.setAttribute("x", `${100 * share}%`);
      text.setAttribute("y", "12");
      text.setAttribute("text-anchor", share < 0.03 ? "start" : share > 0.97 ? "end" : "middle");
      text.textContent = `${Number((i * step / size).toPrecision(9))} ${unit}`;
      axis.append(text);
    }
  }

  function frame() {
    const outer = root.getBoundingClientRect(), inner = axis.getBoundingClientRect();
    return { left: inner.left - outer.left, width: inner.width, outer };
  }

  function unitAt(event) {
    const box = axis.getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    return view.low + share * (view.high - view.low);
  }

  function nearest(points, at) {
    let low = 0, high = points.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < at) low = middle + 1; else high = middle;
    }
    const near = [points[low - 1], points[low]].filter(Boolean);
    near.sort((a, b) => Math.abs(a[0] - at) - Math.abs(b[0] - at));
    return near[0];
  }

  function textsAt(at) {
    const slack = (view.high - view.low) * 3 / Math.max(axis.clientWidth, 1);
    const texts = [];
    for (const lane of data.ranges) {
      const hit = lane.find(([low, high, text]) => text && low <= at && at < high) ||
        lane.find(([low, high, text]) => text && low - slack <= at && at <= high + slack);
      if (hit) texts.push(hit[2]);
    }
    const point = nearest(data.points, at);
    if (point && Math.abs(point[0] - at) <= 2 * slack) texts.splice(1, 0, point[1]);
    return texts;
  }

  function place(from, to) {
    const { left, width } = frame();
    const x = (unit) => left + width * (unit - view.low) / (view.high - view.low);
    cursor.hidden = false;
    cursor.style.left = `${x(from)}px`;
    cursor.style.width = `${Math.max(x(to) - x(from), 1)}px`;
    cursor.classList.toggle("range", to > from);
  }

  function hover(event) {
    const at = unitAt(event), texts = textsAt(at);
    place(at, at);
    tip.hidden = texts.length === 0;
    tip.textContent = texts.join("\n");
    const { outer } = frame();
    const x = event.clientX - outer.left, y = event.clientY - outer.top;
    const flip = x > outer.width - tip.offsetWidth - 24;
    tip.style.left = `${Math.max(flip ? x - tip.offsetWidth - 14 : x + 14, 0)}px`;
    tip.style.top = `${y + 16}px`;
  }

  function hide() { cursor.hidden = true; tip.hidden = true; }

  let start = null;
  root.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.target.closest(".lane-body") && event.pointerType !== "touch") start = unitAt(event);
  });
  root.addEventListener("pointermove", (event) => {
    if (start === null) { hover(event); return; }
    const at = unitAt(event);
    tip.hidden = true;
    place(Math.min(start, at), Math.max(start, at));
  });
  window.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const at = unitAt(event), low = Math.min(start, at), high = Math.max(start, at);
    start = null;
    if (high - low > (view.high - view.low) / 100) show(low, high);
    hide();
  });
  root.addEventListener("pointerleave", () => { if (start === null) hide(); });
  root.addEventListener("dblclick", () => show(0, data.units));
  window.addEventListener("resize", label);

  const MOVES = {
    in: (w) => [view.low + w / 4, view.high - w / 4],
    out: (w) => [view.low - w / 2, view.high + w / 2],
    left: (w) => [view.low - w / 3, view.high - w / 3],
    right: (w) => [view.low + w / 3, view.high + w / 3],
    all: () => [0, data.units],
  };
  for (const button of document.querySelectorAll("button[data-zoom]")) {
    button.addEventListener("click", () => show(...MOVES[button.dataset.zoom](view.high - view.low)));
  }
  show(0, data.units);
})();
