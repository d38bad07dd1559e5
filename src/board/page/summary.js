/*
 * summary - the first screen: is the run alive, how far, how long still, is the loss
 * healthy, how fast against what this machine can, what limits it.
 */

const HEALTH = {
    healthy: ["✔", "good", "Healthy"], flat: ["–", "mark", "Flat"], spiking: ["▲", "warn", "Spiking"],
    diverged: ["✖", "bad", "Diverged"], unknown: ["·", "mark", "Too early to say"],
};

class Summary {
    constructor(box, source) {
        this.box = box;
        this.source = source;
        this.make();
    }

    make() {
        const part = (name, tag, facts) => (this[name] = el(tag, facts || {}));
        this.box.append(
            el("div", {class: "card hero"},
                el("div", {class: "hero-top"}, part("state", "span"), part("name", "h2"), el("span", {class: "grow"}), part("age", "span", {class: "age"})),
                part("note", "p", {class: "note"}),
                el("div", {class: "progress", role: "progressbar", "aria-label": "Progress", "aria-valuemin": "0", "aria-valuemax": "100"}, part("fill", "span")),
                el("div", {class: "facts"}, this.fact("steps", "Step"), this.fact("tokens", "Tokens"), this.fact("left", "Time left"))),
            el("div", {class: "tiles"},
                el("div", {class: "card tile"}, el("h3", {}, "Loss"), el("div", {class: "big"}, part("loss", "span"), part("health", "span")),
                    part("healthText", "p"), part("evalText", "p", {class: "dim"})),
                el("div", {class: "card tile"}, el("h3", {}, "Speed"), el("div", {class: "big"}, part("speed", "span"), el("small", {}, "tokens/s")),
                    el("div", {class: "meter"}, part("mfuFill", "span")), part("mfuText", "p")),
                el("div", {class: "card tile"}, el("h3", {}, "What limits it"), part("shareBar", "div", {class: "shares"}),
                    part("limit", "p", {class: "limit"}), part("shareKeys", "div", {class: "keys"}))),
            part("where", "p", {class: "where"}));
        this.progress = this.fill.parentElement;
        this.meter = this.mfuFill.parentElement;
    }

    fact(name, title) {
        this[name] = el("b", {});
        this[name + "More"] = el("span", {class: "dim"});
        return el("div", {class: "fact"}, el("span", {class: "label"}, title), this[name], this[name + "More"]);
    }

    set(run) {
        this.run = run;
        const start = run.start || {};
        showState(this.state, run.state);
        this.name.textContent = run.name;
        this.name.title = run.path || "";
        this.setNote(run);
        this.setProgress(run, start);
        this.setLoss(run);
        this.setSpeed(run, start);
        this.limit.textContent = run.limit || "Nothing measured yet.";
        const where = [start.layout, start.world ? start.world + (start.world === 1 ? " rank" : " ranks") : "", start.threads ? start.threads + (start.threads === 1 ? " thread each" : " threads each") : "",
            start.dtype, start.kernels ? "kernels " + start.kernels : "", start.host, start.version ? "trefoil " + start.version : "",
            start.pid ? "process " + start.pid : "", start.restarts ? start.restarts + (start.restarts === 1 ? " restart" : " restarts") : "", run.path];
        this.where.textContent = where.filter(Boolean).join(" · ");
        this.tick();
    }

    setNote(run) {
        const isReading = isNumber(run.file_bytes) && isNumber(run.read_bytes) && run.read_bytes < run.file_bytes - 65536;
        const reading = isReading ? "Reading its file: " + formatBytes(run.read_bytes) + " of " + formatBytes(run.file_bytes) + "." : "";
        this.note.textContent = [run.note, reading].filter(Boolean).join(" ");
        this.note.hidden = this.note.textContent === "";
        this.note.classList.toggle("alarm", run.state === "dead" || run.state === "unreadable");
    }

    setProgress(run, start) {
        const share = run.steps_total > 0 && isNumber(run.step) ? Math.min(1, run.step / run.steps_total) : null;
        this.fill.style.width = 100 * (share || 0) + "%";
        this.progress.setAttribute("aria-valuenow", String(Math.round(100 * (share || 0))));
        this.steps.textContent = formatCount(run.step);
        this.stepsMore.textContent = share === null ? "" : "of " + formatCount(run.steps_total) + " · " + formatShare(share);
        this.tokens.textContent = formatTokens(run.tokens);
        const total = start.tokens_per_step * run.steps_total;
        this.tokensMore.textContent = isNumber(total) && total > 0 ? "of " + formatTokens(total) : "";
        const isOver = ["finished", "stopped", "dead"].includes(run.state);
        this.left.textContent = run.state === "finished" ? "done" : isOver ? "–" : formatSeconds(run.seconds_left);
        const end = this.now() + run.seconds_left;
        this.leftMore.textContent = !isOver && isNumber(run.seconds_left) ? "until about " + formatMoment(end, run.seconds_left)
            : run.state === "finished" ? formatTime(run.last_time) : "";
    }

    setLoss(run) {
        const health = run.loss_health || {state: "unknown", text: ""};
        const [glyph, tone, text] = HEALTH[health.state] || HEALTH.unknown;
        this.loss.textContent = isNumber(run.loss) ? trimNumber(run.loss, 4) : "–";
        this.health.replaceChildren(el("span", {class: "badge " + tone}, el("span", {class: "glyph", "aria-hidden": "true"}, glyph), text));
        const said = String(health.text || "").replace(health.state + ": ", ""); // the badge says it
        this.healthText.textContent = said ? said[0].toUpperCase() + said.slice(1) : "";
        this.evalText.textContent = isNumber(run.eval_loss) ? "Evaluation " + formatValue(run.eval_loss) + ", perplexity " + formatValue(Math.exp(run.eval_loss), 3) : "";
    }

    setSpeed(run, start) {
        this.speed.textContent = formatLarge(run.tokens_per_second);
        const share = isNumber(run.mfu) ? run.mfu : null;
        this.mfuFill.style.width = 100 * Math.min(1, share || 0) + "%";
        this.meter.hidden = share === null;
        const rate = isNumber(start.product_flops) ? " of the " + formatLarge(start.product_flops, "FLOP/s") + " this machine can" : "";
        this.mfuText.textContent = share === null ? "MFU is not known yet." : "MFU " + formatShare(share) + rate;
    }

    /* shares: [compute, waiting, reader, optimizer] of the newest record, or null. */
    setShares(shares) {
        const known = Boolean(shares && shares.every(isNumber));
        this.shareBar.hidden = this.shareKeys.hidden = !known;
        if (!known) return;
        const rest = Math.max(0, 1 - shares.reduce((a, b) => a + b, 0));
        const parts = [...SHARES.map(([, text, colour], i) => [text, colour, shares[i]]), ["other", "grid", rest]];
        this.shareBar.replaceChildren(...parts.map(([text, colour, share]) => {
            const bar = el("span", {title: text + " " + formatShare(share)});
            bar.style.width = 100 * share + "%";
            bar.style.background = themeColour(colour);
            return bar;
        }));
        this.shareKeys.replaceChildren(...parts.filter((p) => p[2] >= 0.005).map(([text, colour, share]) => {
            const swatch = el("span", {class: "swatch"});
            swatch.style.background = themeColour(colour);
            return el("span", {class: "key"}, swatch, text + " " + formatShare(share));
        }));
    }

    now() {
        return this.source.isSaved ? this.source.savedAt : Date.now() / 1000 + this.source.clockSkew;
    }

    /* Once a second: how long ago the run last wrote. */
    tick() {
        if (!this.run) return;
        const age = this.now() - this.run.last_time;
        const isOver = this.run.state === "finished";
        this.age.textContent = !isNumber(age) ? "" : isOver ? "ended " + formatTime(this.run.last_time)
            : "last line " + (age < 1.5 ? "just now" : formatSeconds(Math.round(age)) + " ago");
        this.age.title = formatTime(this.run.last_time);
    }
}
