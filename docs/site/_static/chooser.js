// The chooser of versions: versions.js, beside all versions' folders, says which there are.
"use strict";
(function () {
  const place = document.querySelector(".site-version");
  const versions = window.odradekVersions;
  if (!place || !versions) return;
  const chooser = place.querySelector("select");
  const own = place.dataset.version;
  chooser.replaceChildren(
    ...versions.map((version) => new Option(version, version, false, version === own))
  );
  // The same page of another version, or its first one where it has none of that name.
  function address(version) {
    const pages = (window.odradekPages || {})[version] || [];
    const page = pages.includes(place.dataset.page) ? place.dataset.page : "index";
    return new URL(`${place.dataset.root}../${version}/${page}.html`, document.baseURI).href;
  }
  chooser.addEventListener("change", () => {
    window.location.href = address(chooser.value);
  });
  const article = document.querySelector("article");
  if (article && versions.indexOf(own) > 0) {
    const link = document.createElement("a");
    link.href = address(versions[0]);
    link.textContent = `Odradek ${versions[0]}`;
    const words = document.createElement("p");
    words.className = "site-older";
    words.append(`This page is of ${own}. The newest release is `, link, ".");
    article.prepend(words);
  }
})();
