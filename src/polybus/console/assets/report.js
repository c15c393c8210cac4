// A report that a pipeline wrote, as HTML: copied node by node into the page, and nothing of it but text, tables and plots.
import { h } from "./vendor/preact.js";
import { parseHtml } from "./atom.js";

const TAGS = new Set(
  ("main section div p h1 h2 h3 figure span strong em b i small ul li table thead tbody tr th td " +
    "svg g path rect line circle polyline polygon text tspan title").split(" "),
);
const ATTRIBUTES = new Set(
  ("class colspan rowspan scope viewBox d points x y x1 y1 x2 y2 cx cy r rx ry dx dy width height " +
    "transform text-anchor dominant-baseline role aria-label preserveAspectRatio").split(" "),
);
const DEEPEST = 40;

function copied(node, depth) {
  if (node.nodeType === Node.TEXT_NODE) return node.data;
  if (node.nodeType !== Node.ELEMENT_NODE || depth > DEEPEST) return null;
  const children = [...node.childNodes].map((each) => copied(each, depth + 1));
  if (!TAGS.has(node.localName)) return node.localName === "style" || node.localName === "script" ? null : children;
  const given = [...node.attributes].filter((each) => ATTRIBUTES.has(each.name));
  return h(node.localName, Object.fromEntries(given.map((each) => [each.name, each.value])), children);
}

export function Report({ html }) {
  // Its own style sheet is not wanted: the policy would refuse it, and say so for each report.
  const parsed = parseHtml(html.replace(/<style[^]*?<\/style>/gi, ""));
  return h("div", { class: "report polybus" }, copied(parsed.querySelector("main") ?? parsed.body, 0));
}
