// The timelines of "What happens when…": recorded stories, drawn as SVG and scrubbed by a slider.
"use strict";
(function () {
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 960, LEFT = 150, RIGHT = 12, TOP = 22, LANE = 30, GAP = 6;
  const CLIENTS = ["producer", "consumer"];

  function svg(name, attributes, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function html(name, className, ...children) {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children);
    return made;
  }

  // The state at a time: the last entry that isn't later.
  function latest(entries, time) {
    let found = null;
    for (const entry of entries) {
      if (entry[0] > time) break;
      found = entry;
    }
    return found;
  }

  // The intervals in which a client was connected to an address.
  function connections(story, address, client) {
    const found = [];
    let since = null;
    for (const [time, who, kind, place] of story.events) {
      if (who !== client || place !== address) continue;
      if (kind === "ready" && since === null) since = time;
      if (kind === "disconnected" && since !== null) {
        found.push([since, time]);
        since = null;
      }
    }
    if (since !== null) found.push([since, story.seconds]);
    return found;
  }

  // The middle of the longest gap between failed attempts at an address: a word there hides no mark.
  function clear(story, address, since, until) {
    const marks = story.events
      .filter(([time, , kind, place]) => kind === "dial_failed" && place === address && time > since && time < until)
      .map(([time]) => time);
    const times = [since, ...marks.sort((one, other) => one - other), until];
    let longest = 1;
    times.forEach((time, index) => {
      if (index && time - times[index - 1] > times[longest] - times[longest - 1]) longest = index;
    });
    return (times[longest - 1] + times[longest]) / 2;
  }

  function picture(story) {
    const rows = story.lanes.length;
    const bottom = TOP + rows * (LANE + GAP);
    const height = bottom + 3 * 20 + 26;
    const x = (time) => LEFT + (time / story.seconds) * (WIDTH - LEFT - RIGHT);
    const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "timeline-picture", "aria-hidden": "true" });

    for (let second = 0; second <= story.seconds; second += 2) {
      root.append(
        svg("line", { x1: x(second), x2: x(second), y1: TOP - 4, y2: height - 22, class: "grid" }),
        svg("text", { x: x(second), y: height - 6, class: "axis" }, `${second}`)
      );
    }
    root.append(svg("text", { x: LEFT - 10, y: height - 6, class: "lane-name" }, "seconds"));

    story.lanes.forEach((lane, row) => {
      const y = TOP + row * (LANE + GAP);
      const [host] = lane.address.split(":");
      const [name, cluster] = lane.states[0][2].split(" of the "); // the margin holds few words
      root.append(
        svg("text", { x: LEFT - 10, y: y + 12, class: "lane-name" }, name),
        svg("text", { x: LEFT - 10, y: y + 25, class: "lane-address" }, cluster ? `${host}, ${cluster}` : host)
      );
      lane.states.forEach(([since, state], index) => {
        const next = lane.states[index + 1];
        const until = next ? next[0] : story.seconds;
        root.append(svg("rect", { x: x(since), y, width: x(until) - x(since), height: LANE, class: `state ${state}` }));
        const words = { down: "down", hangs: "hangs" }[state];
        if (words) root.append(svg("text", { x: x(clear(story, lane.address, since, until)), y: y + 19, class: "state-name" }, words));
      });
      CLIENTS.forEach((client, half) => {
        const middle = y + (half ? 22 : 8);
        for (const [since, until] of connections(story, lane.address, client)) {
          root.append(svg("line", { x1: x(since), x2: x(until), y1: middle, y2: middle, class: `connection ${client}` }));
        }
        for (const [time, who, kind, place] of story.events) {
          if (who !== client || place !== lane.address) continue;
          const at = x(time);
          if (kind === "dial_failed") {
            root.append(svg("path", { d: `M${at - 4},${middle - 4}l8,8m0,-8l-8,8`, class: `failed ${client}` }));
          } else if (kind === "foreign_cluster") {
            root.append(svg("circle", { cx: at, cy: middle, r: 5, class: `refused ${client}` }));
          }
        }
      });
    });

    ["sent", "acknowledged", "read"].forEach((name, index) => {
      const y = bottom + 12 + index * 20;
      root.append(svg("text", { x: LEFT - 10, y: y + 4, class: "lane-name" }, name));
      for (const record of story.records) {
        if (record[index] !== null) {
          root.append(svg("circle", { cx: x(record[index]), cy: y, r: 3, class: `record ${index === 2 ? "consumer" : "producer"}` }));
        }
      }
    });

    const cursor = svg("line", { x1: x(0), x2: x(0), y1: TOP - 12, y2: height - 20, class: "cursor" });
    root.append(cursor);
    return { root, move: (time) => { cursor.setAttribute("x1", x(time)); cursor.setAttribute("x2", x(time)); } };
  }

  function count(story, index, time) {
    return story.records.filter((record) => record[index] !== null && record[index] <= time).length;
  }

  function brokers(story, time) {
    const words = [];
    for (const lane of story.lanes) {
      const found = latest(lane.states, time);
      if (!found || lane === story.lanes[0]) continue;
      if (found[1] === "up") words.push(`${found[2]} at ${lane.address}`);
      if (found[1] === "hangs") words.push(`${found[2]} hangs`);
    }
    return words.length ? words.join(", ") : "no broker is up";
  }

  function legend() {
    const box = html("p", "timeline-legend");
    for (const [className, words] of [
      ["line producer", "producer connected"], ["line consumer", "consumer connected"],
      ["cross", "connection attempt fails"], ["block up", "broker is up"],
      ["block hangs", "hangs"], ["block down", "down"],
    ]) {
      const mark = html("span", `mark ${className}`);
      if (className === "cross") mark.textContent = "×";
      mark.setAttribute("aria-hidden", "true");
      box.append(html("span", "entry", mark, words));
    }
    return box;
  }

  function build(place, story) {
    const { root, move } = picture(story);
    const slider = html("input", "timeline-slider");
    const id = `timeline-${story.name}`;
    Object.assign(slider, { type: "range", min: "0", max: String(story.seconds), step: "0.1", value: "6", id });
    const label = html("label", "", "Time");
    label.htmlFor = id;
    const summary = html("p", "timeline-summary");
    summary.setAttribute("role", "status");
    const events = html("ol", "timeline-events");
    const says = CLIENTS.map((client) => {
      const text = html("pre", "");
      text.tabIndex = 0; // it scrolls
      const details = html("details", "", html("summary", ""), text);
      details.open = client === "producer";
      return { client, text, details };
    });

    // In a narrow window the picture is wider: the chosen time stays in sight.
    function follow(time) {
      const room = scroller.clientWidth, whole = scroller.scrollWidth;
      const at = ((LEFT + ((WIDTH - LEFT - RIGHT) * time) / story.seconds) / WIDTH) * whole;
      if (at < scroller.scrollLeft || at > scroller.scrollLeft + room) scroller.scrollLeft = at - room / 2;
    }

    function show() {
      const time = Number(slider.value);
      move(time);
      follow(time);
      summary.textContent =
        `${time.toFixed(1)} s: ${brokers(story, time)}. ${count(story, 0, time)} records sent, ` +
        `${count(story, 1, time)} acknowledged, ${count(story, 2, time)} read.`;
      slider.setAttribute("aria-valuetext", `${time.toFixed(1)} seconds`);
      const before = story.events.filter((event) => event[0] <= time).slice(-6);
      for (const error of story.errors) if (error[0] <= time) before.push([error[0], error[1], "", "", `a call raises ${error[2]}`]);
      events.replaceChildren(
        ...before.map(([at, who, , , words]) =>
          html("li", who, html("span", "when", `${at.toFixed(2)} s`), html("span", "who", who), html("span", "words", words))
        )
      );
      for (const { client, text } of says) {
        const said = latest(story.says[client], time);
        text.textContent = said ? said[1] : "(nothing yet)";
        text.previousSibling.textContent = `${client}.explain()` + (said ? ` at ${said[0].toFixed(1)} s` : "");
        text.tabIndex = 0;
      }
    }

    const play = html("button", "timeline-play", "Play");
    play.type = "button";
    let timer = null;
    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
    }
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (Number(slider.value) >= story.seconds) slider.value = "0";
      play.textContent = "Pause";
      timer = setInterval(() => {
        slider.value = String(Number(slider.value) + 0.1);
        show();
        if (Number(slider.value) >= story.seconds) stop();
      }, 100);
    });
    slider.addEventListener("input", () => { stop(); show(); });
    root.addEventListener("pointerdown", (event) => {
      const box = root.getBoundingClientRect();
      const inside = ((event.clientX - box.left) / box.width) * WIDTH;
      stop();
      slider.value = String(((inside - LEFT) / (WIDTH - LEFT - RIGHT)) * story.seconds);
      show();
    });

    const scroller = html("div", "timeline-scroller", root);
    scroller.setAttribute("role", "group");
    scroller.setAttribute("aria-label", `Picture of the timeline "${story.name}"`);
    scroller.tabIndex = 0; // narrow windows scroll it
    const controls = html("div", "timeline-controls", play, label, slider);
    place.replaceChildren(
      scroller, controls, legend(), summary, html("p", "timeline-title", "The last events until then:"),
      events, ...says.map((one) => one.details)
    );
    show();
  }

  for (const place of document.querySelectorAll(".timeline[data-trace]")) {
    const story = (window.odradekTraces || []).find((one) => one.name === place.dataset.trace);
    if (story) build(place, story);
  }
})();
