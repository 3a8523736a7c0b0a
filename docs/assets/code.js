// For keys and screen readers: code, tables and figures scroll by keys, and the buttons that copy
// code, which the theme puts into <nav> without a name, are no landmarks. The theme takes tabindex
// off again.
const SCROLLING = ["pre > code", ".md-typeset__scrollwrap", ".md-typeset p:has(> img)"]
  .map((one) => `${one}:not([tabindex])`)
  .join(", ");
function label() {
  for (const one of document.querySelectorAll(SCROLLING)) one.tabIndex = 0;
  for (const nav of document.querySelectorAll(".md-code__nav")) nav.setAttribute("role", "none");
}
label();
new MutationObserver(label).observe(document.body, {
  attributeFilter: ["tabindex"],
  childList: true,
  subtree: true,
});
