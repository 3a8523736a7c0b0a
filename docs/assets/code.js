// For keys and screen readers: blocks of code scroll by keys, and their copy buttons, which the
// theme puts into <nav> without a name, are no landmarks. The theme takes tabindex off again.
function label() {
  for (const code of document.querySelectorAll("pre > code:not([tabindex])")) code.tabIndex = 0;
  for (const nav of document.querySelectorAll(".md-code__nav")) nav.setAttribute("role", "none");
}
label();
new MutationObserver(label).observe(document.body, {
  attributeFilter: ["tabindex"],
  childList: true,
  subtree: true,
});
