// Tables sort by a click on a heading, keep the rows that hold what is typed, and copy as CSV what they show.
import { button, copyText, element, say } from "./dom";

const FILTER_FROM = 8; // rows from which typing finds faster than looking

export function equipTable(region: HTMLElement): void {
  const table = region.querySelector("table");
  const body = table?.tBodies[0];
  if (!table || !body) return;
  const tools = element("div", { class: "table-tools" });
  const label = table.getAttribute("aria-label") ?? "table";
  if (body.rows.length >= FILTER_FROM && region.dataset.filter !== "off") tools.append(filter(body, label));
  const copy = button("Copy CSV", `Copy ${label} as CSV`, async () => {
    try {
      await copyText(toCsv(table));
      say(tools, `copied ${visible(body).length} rows`);
    } catch (error) {
      say(tools, String(error instanceof Error ? error.message : error));
    }
  });
  copy.classList.add("copy-csv");
  tools.append(copy);
  const before = region.previousElementSibling;
  if (before && /^H[23]$/.test(before.tagName)) {
    const bar = element("div", { class: "bar-head" });
    before.replaceWith(bar);
    bar.append(before, tools);
  } else {
    region.before(tools);
  }
  [...(table.tHead?.rows[0]?.cells ?? [])].forEach((heading, column) => {
    if (heading.textContent?.trim()) makeSortable(table, body, heading, column);
  });
}

function filter(body: HTMLTableSectionElement, label: string): HTMLElement {
  const input = element("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${label}` });
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.textContent?.toLowerCase() ?? "";
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  return input;
}

function makeSortable(table: HTMLTableElement, body: HTMLTableSectionElement, heading: HTMLTableCellElement, column: number): void {
  const sorter = element("button", { type: "button", class: "sort" }, ...heading.childNodes);
  heading.replaceChildren(sorter);
  sorter.addEventListener("click", () => {
    // Figures start with the largest, names with A; the next click turns it round.
    const figures = heading.classList.contains("right");
    const before = heading.getAttribute("aria-sort");
    const rising = before ? before === "descending" : !figures;
    for (const other of table.tHead!.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const rows = [...body.rows];
    const keys = new Map(rows.map((row) => [row, sortKey(row.cells[column])]));
    rows.sort((a, b) => compare(keys.get(a)!, keys.get(b)!, rising));
    body.append(...rows);
  });
}

type Key = number | string | null;

function sortKey(cell: HTMLTableCellElement): Key {
  const value = cell.dataset.v;
  if (value !== undefined) return value === "" ? null : Number(value);
  return cell.textContent?.trim().toLowerCase() ?? "";
}

// What is not known stands last either way.
function compare(a: Key, b: Key, rising: boolean): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return rising ? order : -order;
}

const visible = (body: HTMLTableSectionElement) => [...body.rows].filter((row) => !row.hidden);

function toCsv(table: HTMLTableElement): string {
  const headings = [...(table.tHead?.rows[0].cells ?? [])];
  const columns = headings.map((_, i) => i).filter((i) => headings[i].dataset.csv);
  const lines = [columns.map((i) => quote(headings[i].dataset.csv!))];
  for (const row of visible(table.tBodies[0])) lines.push(columns.map((i) => quote(cellText(row.cells[i]))));
  return lines.map((line) => line.join(",") + "\r\n").join("");
}

function cellText(cell: HTMLTableCellElement): string {
  return cell.dataset.v ?? (cell.textContent?.trim().replace(/\u00a0/g, " ") ?? "");
}

function quote(text: string): string {
  // A name that begins like a formula must stay text in a spreadsheet.
  const safe = /^[=+@\t\r-]/.test(text) && !/^-?\d/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
