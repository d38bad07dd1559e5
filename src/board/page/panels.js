/*
 * panels - what is read rather than drawn: the list of runs, the difference of their
 * configurations, events, sampled texts, one run's configuration.
 */

/* A state by shape and word; colour only repeats it. */
const STATES = {
    training: ["●", "good", "Training"], evaluating: ["◐", "good", "Evaluating"], saving: ["◒", "good", "Saving"],
    starting: ["○", "mark", "Starting"], finished: ["✔", "done", "Finished"], stopped: ["■", "mark", "Stopped"],
    dead: ["✖", "bad", "Dead"], empty: ["○", "mark", "Empty"], unreadable: ["!", "bad", "Unreadable"],
};

function stateBadge(state) {
    const [glyph, tone, text] = STATES[state] || ["?", "mark", String(state)];
    return el("span", {class: "badge " + tone + (tone === "good" ? " beats" : "")}, el("span", {class: "glyph", "aria-hidden": "true"}, glyph), text);
}

/* Left alone while it is the same, so that it goes on beating. */
function showState(box, state) {
    if (box.dataset.state === state) return;
    box.dataset.state = state;
    box.replaceChildren(stateBadge(state));
}

function table(heads, rows) {
    const line = (cells, tag) => el("tr", {}, ...cells.map((cell) => el(tag, {}, cell)));
    return el("div", {class: "scroll", tabindex: "0"}, el("table", {}, el("thead", {}, line(heads, "th")), el("tbody", {}, ...rows.map((row) => line(row, "td")))));
}

/* -- the list of runs ----------------------------------------------------------------------- */

/* One row a run: tick to draw it, click to look at it. Hidden while there is only one. */
class RunList {
    constructor(box, board) {
        this.box = box;
        this.board = board;
        this.filter = el("input", {type: "search", placeholder: "Filter by name", "aria-label": "Filter runs by name"});
        this.filter.addEventListener("input", () => this.show());
        this.body = el("tbody", {});
        this.count = el("span", {class: "now"});
        const heads = ["", "Run", "State", "Step", "Loss", "Evaluation", "Tokens/s", "MFU"].map((text) => el("th", {}, text));
        heads[0].append(el("span", {class: "away"}, "Draw"));
        box.append(el("div", {class: "head"}, el("h2", {}, "Runs"), this.count, el("span", {class: "grow"}), this.filter),
            el("div", {class: "scroll runs-scroll"}, el("table", {class: "runs"}, el("thead", {}, el("tr", {}, ...heads)), this.body)));
        this.rows = new Map();
    }

    set(runs) {
        this.runs = runs;
        this.box.hidden = runs.length < 2;
        this.filter.hidden = runs.length < 9;
        this.show();
    }

    show() {
        const wanted = this.filter.value.trim().toLowerCase();
        const shown = this.runs.filter((run) => String(run.name).toLowerCase().includes(wanted));
        this.count.textContent = shown.length === this.runs.length ? String(this.runs.length) : shown.length + " of " + this.runs.length;
        const order = shown.map((run) => this.row(run));
        // Rows are kept, so that the focus of the keyboard is.
        if (order.length !== this.body.children.length || order.some((row, i) => this.body.children[i] !== row)) this.body.replaceChildren(...order);
    }

    row(run) {
        let row = this.rows.get(run.run);
        if (!row) {
            const box = el("input", {type: "checkbox", "aria-label": "Draw " + run.name});
            box.addEventListener("change", () => this.board.drawRun(run.run, box.checked));
            const swatch = el("span", {class: "swatch wide"});
            const name = el("button", {type: "button", class: "name", onclick: () => this.board.lookAt(run.run)}, run.name);
            row = el("tr", {}, el("td", {}, el("span", {class: "pick"}, box, swatch)), el("td", {}, name));
            for (let i = 0; i < 6; i++) row.append(el("td", {}));
            row.parts = {box, swatch, name};
            this.rows.set(run.run, row);
        }
        const {box, swatch, name} = row.parts;
        const isDrawn = this.board.isDrawn(run.run);
        box.checked = isDrawn;
        swatch.style.background = isDrawn ? curveStyle(this.board.slotOf(run.run)).colour : "transparent";
        name.title = run.path || "";
        row.classList.toggle("focus", run.run === this.board.focus);
        name.setAttribute("aria-current", String(run.run === this.board.focus));
        const cells = row.children;
        showState(cells[2], run.state);
        [formatCount(run.step), formatValue(run.loss), formatValue(run.eval_loss), formatLarge(run.tokens_per_second), formatShare(run.mfu)]
            .forEach((text, i) => (cells[3 + i].textContent = text));
        return row;
    }
}

/* -- configurations -------------------------------------------------------------------------- */

function showDiff(box, runs, rows) {
    box.hidden = runs.length < 2;
    if (box.hidden) return;
    const heads = ["Key", ...runs.map((run) => {
        const swatch = el("span", {class: "swatch wide"});
        swatch.style.background = curveStyle(run.slot).colour;
        return el("span", {class: "pick"}, swatch, run.name);
    })];
    const text = (value) => (value === null || value === undefined ? "not set" : String(value));
    const body = rows.map((row) => [el("code", {}, row.key), ...row.values.map(text)]);
    box.replaceChildren(el("div", {class: "head"}, el("h2", {}, "What differs"), el("span", {class: "now"}, String(rows.length))),
        rows.length ? table(heads, body) : el("p", {class: "empty-text"}, "Their configurations are the same."));
}

function showConfig(box, lines) {
    box.hidden = !lines || lines.length === 0;
    if (box.hidden) return;
    const filter = el("input", {type: "search", placeholder: "Filter keys and values", "aria-label": "Filter keys and values"});
    const rows = lines.map(([key, value]) => {
        const row = el("tr", {}, el("td", {}, el("code", {}, key)), el("td", {}, value === null ? "null" : value));
        row.words = (key + " " + value).toLowerCase();
        return row;
    });
    filter.addEventListener("input", () => {
        const wanted = filter.value.trim().toLowerCase();
        for (const row of rows) row.hidden = !row.words.includes(wanted);
    });
    box.replaceChildren(el("details", {}, el("summary", {}, el("h2", {}, "Configuration"), el("span", {class: "now"}, lines.length + " keys")),
        filter, el("div", {class: "scroll tall", tabindex: "0"}, el("table", {}, el("tbody", {}, ...rows)))));
}

/* -- events ----------------------------------------------------------------------------------- */

/* How each event is told: its mark, its tone, its sentence. */
const EVENTS = {
    start: ["▶", "done", (e) => (isNumber(e.resumed_from) ? "Resumed from step " + formatCount(e.resumed_from) : "Started") +
        (e.layout ? ", " + e.layout : "") + (e.host ? " on " + e.host : "") + (e.restarts ? ", restart " + e.restarts : "")],
    save: ["⬇", "done", (e) => "Checkpoint saved" + (e.path ? ": " + e.path : "")],
    save_failed: ["!", "bad", (e) => "A checkpoint could not be saved" + (e.error ? ": " + e.error : "")],
    skipped: ["↷", "mark", (e) => "Step skipped: a gradient was not finite" + (isNumber(e.loss_scale) ? "; loss scale " + formatValue(e.loss_scale) : "")],
    evaluation: ["✓", "done", (e) => "Evaluation: loss " + formatValue(e.eval_loss)],
    stall: ["◷", "bad", (e) => "No progress" + (e.error ? ": " + e.error : "")],
    failure: ["✖", "bad", (e) => (isNumber(e.rank) ? "Rank " + e.rank + " failed" : "The run failed") + (e.error ? ": " + e.error : "")],
    stopped: ["■", "mark", (e) => "Stopped" + (e.signal ? " by " + e.signal : "")],
    end: ["✔", "done", () => "Finished"],
};

function tellEvent(event) {
    const known = EVENTS[event.event];
    if (known) return [known[0], known[1], known[2](event)];
    const rest = Object.entries(event).filter(([key]) => !["event", "step", "time"].includes(key));
    return ["·", "mark", String(event.event) + (rest.length ? ": " + JSON.stringify(Object.fromEntries(rest)).slice(0, 300) : "")];
}

function showEvents(box, events, evaluations) {
    const told = events.filter((e) => e.event !== "sample" && e.event !== "layers");
    const shown = told.concat(evaluations).sort((a, b) => (a.time || 0) - (b.time || 0));
    box.hidden = shown.length === 0;
    if (box.hidden) return;
    const items = shown.slice().reverse().map((event) => {
        const [glyph, tone, text] = tellEvent(event);
        return el("li", {class: "event " + tone}, el("span", {class: "glyph", "aria-hidden": "true"}, glyph),
            el("div", {}, el("div", {}, text), el("div", {class: "when"}, "step " + formatCount(event.step) + " · " + formatTime(event.time))));
    });
    box.replaceChildren(el("div", {class: "head"}, el("h2", {}, "Events"), el("span", {class: "now"}, String(shown.length))),
        el("ol", {class: "events", tabindex: "0", "aria-label": "Events, newest first"}, ...items));
}

/* What charts mark: [{step, time, kind, text}]. */
function eventMarkers(events) {
    const kinds = {save: "save", failure: "failure", save_failed: "failure", stall: "failure", start: "restart"};
    return events.filter((e) => kinds[e.event] && !(e.event === "start" && !isNumber(e.resumed_from)))
        .map((e) => ({step: e.step, time: e.time, kind: kinds[e.event], text: tellEvent(e)[2]}));
}

/* -- sampled texts ------------------------------------------------------------------------------ */

/* The texts of one evaluation, and a slider over the evaluations: one sees them improve. */
class Samples {
    constructor(box) {
        this.box = box;
        this.chosen = null; // a step, null: the newest
        this.slider = el("input", {type: "range", min: 0, step: 1, "aria-label": "Evaluation"});
        this.slider.addEventListener("input", () => {
            const i = Number(this.slider.value);
            this.chosen = i === this.steps.length - 1 ? null : this.steps[i];
            this.show();
        });
        this.at = el("span", {class: "now"});
        this.list = el("div", {class: "samples", tabindex: "0", "aria-label": "Sampled texts"});
        box.append(el("div", {class: "head"}, el("h2", {}, "Sampled texts"), this.at, el("span", {class: "grow"}), this.slider), this.list);
    }

    set(samples) {
        this.all = samples;
        this.steps = [...new Set(samples.map((s) => s.step))].sort((a, b) => a - b);
        this.box.hidden = samples.length === 0;
        if (!this.box.hidden) this.show();
    }

    show() {
        let i = this.chosen === null ? this.steps.length - 1 : this.steps.indexOf(this.chosen);
        if (i < 0) i = this.steps.length - 1;
        this.slider.hidden = this.steps.length < 2;
        this.slider.max = String(this.steps.length - 1);
        this.slider.value = String(i);
        this.slider.setAttribute("aria-valuetext", "step " + this.steps[i]);
        this.at.textContent = "step " + formatCount(this.steps[i]);
        this.list.replaceChildren(...this.all.filter((s) => s.step === this.steps[i])
            .map((s) => el("blockquote", {}, el("b", {}, s.prompt || ""), s.text || "")));
    }
}
