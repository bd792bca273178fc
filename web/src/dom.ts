// Elements from text: names are untrusted, so nothing here takes markup.

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Record<string, string> = {}, ...content: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...content);
  return node;
}

export function shape(tag: string, attributes: Record<string, string | number>, ...content: (Node | string)[]): SVGElement {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...content);
  return node;
}

export function button(text: string, label: string, act: () => void): HTMLButtonElement {
  const node = element("button", { type: "button", title: label }, text);
  if (label !== text) node.setAttribute("aria-label", label);
  node.addEventListener("click", act);
  return node;
}

// Says what happened where the reader looks, and to a screen reader.
export function say(near: HTMLElement, text: string): void {
  let status = near.querySelector<HTMLElement>(":scope > .said");
  if (!status) {
    status = element("span", { class: "said", role: "status" });
    near.append(status);
  }
  status.textContent = text;
  setTimeout(() => { if (status.textContent === text) status.textContent = ""; }, 2500);
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page from a file may not be allowed to use the clipboard directly; a selection that is copied may.
    const area = element("textarea", { class: "offscreen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) throw new Error("the browser does not let this page copy");
  }
}

export function saveText(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
