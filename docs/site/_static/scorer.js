// Weights of Sphinx' search: its defaults, guides first, pages for few readers last; README repeats the home page.
"use strict";
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , description, score]) =>
    description && description.includes("attribute") ? score - 14
    : /^(docs\/(guide|start|install|spark|switching|workers|security|serialization|testing|monitoring)|tasks$)/.test(page) ? score + 3
    : /^(README|CHANGELOG|CONTRIBUTING|DESIGN|docs\/(kips|rules|simulation)|benchmarks\/)/.test(page) ? score - 12
    : score,
};
// Excerpts are fetched, which pages that were opened as files may not do.
DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = window.location.protocol.startsWith("http");
