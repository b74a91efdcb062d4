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
  chooser.addEventListener("change", () => {
    const root = new URL(`${place.dataset.root}../${chooser.value}/`, document.baseURI);
    window.location.href = new URL("index.html", root).href;
  });
})();
