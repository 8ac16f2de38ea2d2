// A plan, drawn: what is read at the bottom, the result on top. Documents of EXPLAIN … AS JSON.
import { html, useState } from "/console/vendor/preact.js";

export function planOf(cell) {
  try {
    const document_ = typeof cell === "string" ? JSON.parse(cell) : cell;
    return document_?.plan?.node ? document_ : null;
  } catch {
    return null;
  }
}

export function Plan({ document: { plan, answered }, label = "Plan" }) {
  const [asText, setAsText] = useState(false);
  return html`<div class="plan">
    <div class="plan-head">
      ${answered ? html`<p>${answered[0]} ${answered.slice(1).map((line) => line.trim()).join("; ")}</p>` : html`<p></p>`}
      <button type="button" class="quiet" onClick=${() => setAsText(!asText)}>${asText ? "Drawn" : "As text"}</button>
    </div>
    ${asText
      ? html`<pre class="scroll" tabindex="0" role="region" aria-label=${label}>${text(plan)}</pre>`
      : html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><ul class="tree"><${Node} node=${plan} /></ul></div>`}
  </div>`;
}

const TONES = { Get: "read", Join: "join", Reduce: "group", TopK: "group", Distinct: "group", Window: "group", Union: "join", Constant: "read" };

function Node({ node }) {
  const rest = node.text.startsWith(node.node) ? node.text.slice(node.node.length).trim() : node.text;
  return html`<li>
    <div class="op ${TONES[node.node] || ""}"><b>${node.node}</b> <span>${rest}</span></div>
    ${node.inputs.length ? html`<ul>${node.inputs.map((input) => html`<${Node} node=${input} />`)}</ul>` : null}
  </li>`;
}

function text(node, depth = 0) {
  return ["  ".repeat(depth) + node.text, ...node.inputs.map((input) => text(input, depth + 1))].join("\n");
}
