// What the theme leaves out: a name for the buttons of each code block, and a way for the keyboard into a wide table.
new MutationObserver(() => {
  for (const nav of document.querySelectorAll("nav.md-code__nav:not([aria-label])"))
    nav.setAttribute("aria-label", `Code ${nav.parentElement.id.replace(/\D+/, "")}`);
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])"))
    table.setAttribute("tabindex", "0");
}).observe(document.documentElement, { childList: true, subtree: true });
