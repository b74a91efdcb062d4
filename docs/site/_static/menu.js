// What folds the menus away on narrow windows are labels of check boxes, which keys don't reach:
// with a script they are buttons.
"use strict";
(function () {
  for (const [id, name] of [["__navigation", "All pages"], ["__toc", "On this page"]]) {
    const box = document.getElementById(id);
    if (!box) continue;
    const buttons = Array.from(document.querySelectorAll(`label[for="${id}"]:not(.overlay)`), (label) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = label.className;
      button.setAttribute("aria-label", name);
      button.setAttribute("aria-expanded", "false");
      button.append(...label.childNodes);
      button.addEventListener("click", () => box.click());
      label.replaceWith(button);
      return button;
    });
    box.addEventListener("change", () => {
      for (const button of buttons) button.setAttribute("aria-expanded", String(box.checked));
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && box.checked) box.click();
    });
  }
})();
