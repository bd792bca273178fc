// Draws what was computed before: charts into their places, tools on tables, links that open what they point at.
import { readData } from "./data";
import { button, copyText, say } from "./dom";
import { drawHistogram } from "./histogram";
import { drawIcicle } from "./icicle";
import { drawRoofline } from "./roofline";
import { equipTable } from "./tables";
import { buildTabs, showTabOf } from "./tabs";
import { addLane, drawTimeline, stripLane } from "./timeline";
import { drawTrace } from "./trace";
import type { View } from "./view";

const data = readData();

function drawPhase(host: HTMLElement): void {
  const stack = data.stack[host.dataset.of ?? ""];
  if (stack) { drawRoofline(host, stack.points, stack.peaks); return; }
  const details = data.details[host.dataset.phase ?? ""];
  if (!details) return;
  const kind = host.dataset.chart;
  if (kind === "histogram") drawHistogram(host, details);
  else if (kind === "icicle" && details.layers) drawIcicle(host, details.layers);
  else if (kind === "roofline" && data.peaks) drawRoofline(host, details.roofline, data.peaks);
  else if (kind === "trace" && details.trace) drawTrace(host, details.trace, data);
}

// What is folded away is drawn when it is unfolded.
function drawWhenSeen(host: HTMLElement): void {
  const folded = host.closest<HTMLDetailsElement>("details:not([open])");
  if (!folded) { drawPhase(host); return; }
  folded.addEventListener("toggle", () => drawWhenSeen(host), { once: true });
}

function drawMethods(view: View): void {
  const root = document.getElementById("method-strips");
  if (!root) return;
  for (const method of data.methods) {
    if (method.strip.start.length) {
      stripLane(addLane(root, method.method), view, method.strip, (id) => method.colours[String(id)] ?? data.outside_colour);
    }
  }
}

function openTarget(): void {
  const target = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  if (!target) return;
  showTabOf(target);
  for (let at: HTMLElement | null = target; at; at = at.parentElement) if (at instanceof HTMLDetailsElement) at.open = true;
  target.scrollIntoView();
  // Focus goes along; a <details> with a tabindex of its own would hide its content from the keyboard.
  (target.querySelector<HTMLElement>(":scope > summary") ?? target).focus({ preventScroll: true });
}

const timeline = document.getElementById("timeline");
if (timeline) drawMethods(drawTimeline(timeline, data));
for (const host of document.querySelectorAll<HTMLElement>("[data-chart]")) drawWhenSeen(host);
for (const region of document.querySelectorAll<HTMLElement>(".scroll")) equipTable(region);
for (const tabs of document.querySelectorAll<HTMLElement>("[data-tabs]")) buildTabs(tabs);
for (const code of document.querySelectorAll<HTMLElement>("[data-copy]")) {
  const copy = button("Copy", "Copy the command", async () => {
    try { await copyText(code.textContent ?? ""); say(code.parentElement!, "copied"); } catch (error) { say(code.parentElement!, String(error)); }
  });
  code.after(" ", copy);
}
window.addEventListener("hashchange", openTarget);
for (const link of document.querySelectorAll<HTMLAnchorElement>('a[href^="#"]')) {
  link.addEventListener("click", () => { if (link.hash === location.hash) openTarget(); });
}
openTarget();
// On paper everything is unfolded.
window.addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll<HTMLDetailsElement>("details.phase:not([open])")) folded.open = true;
});
