// Tables and pictures: wide ones are reached by keyboard; a click on a heading sorts a table's rows.
"use strict";
(function () {
  // The number that a cell begins with: "1,486 (1,466 to 1,489)" is 1486, "never" comes last.
  function key(row, column) {
    const text = row.cells[column] ? row.cells[column].textContent.trim() : "";
    if (/^never/.test(text)) return [1, Infinity, text];
    const number = text.replace(/,/g, "").match(/^[-+]?\d+(\.\d+)?/);
    return number ? [0, parseFloat(number[0]), text] : [text ? 2 : 3, 0, text];
  }

  function compare(a, b) {
    return a[0] - b[0] || (a[1] === b[1] ? 0 : a[1] - b[1]) || a[2].localeCompare(b[2]);
  }

  const NEXT = { "": "ascending", ascending: "descending", descending: "" };

  // Up, down, and at the third time as the page has it.
  function sort(table, original, column, heading) {
    const order = NEXT[heading.getAttribute("aria-sort") || ""];
    const rows = original.map((row) => ({ row, key: key(row, column) }));
    const way = order === "ascending" ? 1 : -1;
    if (order) rows.sort((a, b) => way * compare(a.key, b.key));
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    if (order) heading.setAttribute("aria-sort", order);
    for (const { row } of rows) table.tBodies[0].append(row);
  }

  // A name isn't torn; a path that is too long for that has room to be, and so has a sentence.
  const WHOLE = 32, PHRASE = 24, SENTENCE = 60;
  for (const code of document.querySelectorAll("article td code")) {
    if (code.textContent.length <= WHOLE) code.classList.add("whole");
    else code.closest("td").classList.add("long-code");
  }
  for (const cell of document.querySelectorAll("article td")) {
    const length = cell.textContent.trim().length;
    if (length > PHRASE) cell.classList.add(length > SENTENCE ? "sentence" : "phrase");
  }

  for (const table of document.querySelectorAll("article table")) {
    const body = table.tBodies[0];
    if (body && body.rows.length && body.rows[0].cells.length < 3) table.classList.add("few-columns");
    if (!table.tHead || !body || body.rows.length < 5 || body.rows[0].cells.length < 4) continue;
    // Figures, or yes and no: words alone have no order that anybody looks for.
    const compared = (row) =>
      Array.from(row.cells).slice(1).some((cell) => /^(\d|never|[YNP]\b)/.test(cell.textContent.trim()));
    if (Array.from(body.rows).filter(compared).length < 3) continue;
    if (body.rows[0].cells.length > 6) table.classList.add("many-columns");
    const original = Array.from(body.rows);
    Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
      if (!heading.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sorter";
      const words = heading.querySelector("p") || heading;
      button.append(...words.childNodes);
      heading.replaceChildren(button);
      button.addEventListener("click", () => sort(table, original, column, heading));
    });
  }

  for (const image of document.querySelectorAll('article p > img[src$=".svg"]:only-child')) {
    image.parentElement.classList.add("picture");
  }

  function reachable() {
    let number = 0;
    for (const box of document.querySelectorAll("article .table-wrapper, article .picture, article pre:not(.timeline pre)")) {
      const picture = box.matches(".picture");
      number += box.matches(".table-wrapper");
      const wide = box.scrollWidth > box.clientWidth;
      if (wide) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
      if (picture || box.matches(".table-wrapper")) {
        if (wide) {
          box.setAttribute("role", "region");
          const name = picture ? `Picture: ${box.firstElementChild.alt}` : `Table ${number}`;
          box.setAttribute("aria-label", `${name}, scrolls sideways`);
        } else {
          box.removeAttribute("role");
          box.removeAttribute("aria-label");
        }
      }
    }
  }
  reachable();
  window.addEventListener("load", reachable); // pictures have a width by then
  window.addEventListener("resize", reachable);
})();
