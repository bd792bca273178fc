// Builds src/ into the two files that the Python package ships: page.js and page.css (or into the folder given).
//
// Both begin with the hash of what they were built from, so that a test without npm can tell whether they are current.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "../src/phasepoint/report");

const inputs = [
  "build.mjs", "package.json", "tsconfig.json", ...readdirSync(join(here, "src")).map((name) => `src/${name}`),
].sort();
const sources = createHash("sha256");
for (const name of inputs) sources.update(`${name}\0`).update(readFileSync(join(here, name))).update("\0");
const lock = createHash("sha256").update(readFileSync(join(here, "package-lock.json")));
const stamp = `sources sha256:${sources.digest("hex")}\nlock sha256:${lock.digest("hex")}`;

const plot = JSON.parse(readFileSync(join(here, "node_modules/uplot/package.json"), "utf8"));
const licence = readFileSync(join(here, "node_modules/uplot/LICENSE"), "utf8").trim();
const notice = (what) =>
  `/*\nBuilt from web/ by \`make web\`; do not edit.\n${stamp}\n` +
  `Contains ${what} ${plot.version}, ${plot.license} licence:\n\n${licence.replaceAll("*/", "* /")}\n*/`;

const common = { bundle: true, minify: true, charset: "utf8", legalComments: "none", write: false, logLevel: "warning" };
const [script, style] = await Promise.all([
  build({ ...common, entryPoints: [join(here, "src/main.ts")], format: "iife", target: "es2022" }),
  build({ ...common, entryPoints: [join(here, "src/page.css")], target: ["chrome100", "firefox100", "safari15.4"] }),
]);
mkdirSync(target, { recursive: true });
for (const [name, result] of [["page.js", script], ["page.css", style]]) {
  writeFileSync(join(target, name), `${notice("uPlot")}\n${result.outputFiles[0].text}`);
}
