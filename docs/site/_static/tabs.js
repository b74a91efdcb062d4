// Blocks of code with captions that follow each other become tabs; without scripts they are shown below each other.
"use strict";
(function () {
  const block = ".literal-block-wrapper";
  for (const first of document.querySelectorAll(`article ${block}`)) {
    if (first.previousElementSibling?.matches(block)) continue;
    const group = [first];
    while (group.at(-1).nextElementSibling?.matches(block)) group.push(group.at(-1).nextElementSibling);
    if (group.length > 1) tabs(group);
  }
  function tabs(group) {
    const list = document.createElement("div");
    list.className = "code-tabs";
    list.setAttribute("role", "tablist");
    list.setAttribute("aria-label", "Examples");
    const buttons = group.map((panel, index) => {
      const button = document.createElement("button");
      const caption = panel.querySelector(".code-block-caption");
      button.type = "button";
      button.id = `${panel.id}-tab`;
      button.textContent = caption.querySelector(".caption-text").textContent;
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", panel.id);
      button.addEventListener("click", () => show(index));
      button.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step) show((index + step + group.length) % group.length).focus();
      });
      caption.hidden = true;
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", button.id);
      return button;
    });
    function show(chosen) {
      group.forEach((panel, index) => {
        panel.hidden = index !== chosen;
        buttons[index].setAttribute("aria-selected", String(index === chosen));
        buttons[index].tabIndex = index === chosen ? 0 : -1;
      });
      return buttons[chosen];
    }
    list.append(...buttons);
    group[0].before(list);
    show(0);
  }
})();
