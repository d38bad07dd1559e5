/*
 * ranks - every rank's step time, waiting and memory as a heat map: a row for each rank, a
 * column for each record, the newest at the right. A rank that holds the others up is the
 * one that waits least; the sentence above the map names it.
 */

const MEASURES = {
    step_seconds: {text: "Step time", format: formatSeconds, of: (d, i, r) => d.step_seconds[i][r]},
    wait_seconds: {
        text: "Waiting", format: formatShare,
        of: (d, i, r) => (d.step_seconds[i][r] > 0 ? d.wait_seconds[i][r] / d.step_seconds[i][r] : null),
    },
    resident_bytes: {
        text: "Memory", format: formatBytes, of: (d, i, r) => d.resident_bytes[i][r],
        planned: (d, r) => (d.plan_bytes || [])[r],
    },
};

class RankMap {
    constructor(box) {
        this.box = box;
        this.measure = "step_seconds";
        this.data = null;
        this.cell = null; // {column, rank} that is read out
        this.canvas = el("canvas", {tabindex: "0", role: "img"});
        this.plot = el("div", {class: "map"}, this.canvas);
        this.read = el("p", {class: "read", role: "status"});
        this.advice = el("p", {class: "advice"});
        this.legend = el("canvas", {class: "legend", "aria-hidden": "true"});
        this.low = el("span", {});
        this.high = el("span", {});
        const choices = Object.entries(MEASURES).map(([value, m]) => [value, m.text]);
        this.box.append(
            el("div", {class: "head"}, el("h2", {}, "Ranks"), el("span", {class: "grow"}),
                segmented("Measure", choices, this.measure, (value) => {
                    this.measure = value;
                    this.draw();
                })),
            this.advice, this.plot,
            el("div", {class: "bar small"}, this.read, el("span", {class: "grow"}), this.low, this.legend, this.high));
        this.canvas.addEventListener("pointermove", (event) => this.pointAt(event));
        this.canvas.addEventListener("pointerleave", () => this.readOut(null));
        this.canvas.addEventListener("keydown", (event) => this.keyPressed(event));
    }

    set(data) {
        const hasData = Boolean(data && data.steps && data.steps.length > 0 && data.step_seconds[data.steps.length - 1].length > 0);
        this.data = hasData ? data : null;
        this.box.hidden = !hasData;
        if (hasData) this.draw();
    }

    nRanks() {
        return this.data.step_seconds[this.data.steps.length - 1].length; // of the newest start
    }

    value(column, rank) {
        const value = MEASURES[this.measure].of(this.data, column, rank);
        return isNumber(value) ? value : null;
    }

    rankName(rank) {
        const each = this.data.ranks_per_entry || 1;
        return each > 1 ? "ranks " + rank * each + " to " + (rank * each + each - 1) : "rank " + rank;
    }

    /* -- the map --------------------------------------------------------------------------- */

    draw() {
        if (!this.data || this.plot.clientWidth < 40) return;
        const width = this.plot.clientWidth;
        const n = this.nRanks();
        const columns = this.data.steps.length;
        const cell = Math.min(28, Math.max(2, Math.floor(420 / n)));
        const left = 62;
        const right = cell >= 12 ? 92 : 8;
        const height = n * cell;
        this.canvas.style.height = height + "px";
        const pen = fitCanvas(this.canvas, width, height);
        const range = this.range();
        const w = (width - left - right) / columns;
        this.area = {left, w, cell, columns, n};
        pen.font = "11px system-ui, sans-serif";
        pen.textBaseline = "middle";
        for (let r = 0; r < n; r++) {
            for (let c = 0; c < columns; c++) {
                const value = this.value(c, r);
                if (value === null) continue;
                pen.fillStyle = this.colour(value, r, range);
                pen.fillRect(left + c * w, r * cell, Math.max(1, w + 0.3), cell - (cell > 6 ? 1 : 0));
            }
            this.drawRow(pen, r, cell, left, width, right);
        }
        this.drawCell(pen);
        this.drawLegend(range);
        this.advice.textContent = this.findStraggler();
        this.canvas.setAttribute("aria-label", MEASURES[this.measure].text + " of " + n + " ranks over " + columns +
            " records. " + this.advice.textContent + " The arrow keys read single values.");
    }

    drawRow(pen, r, cell, left, width, right) {
        const y = r * cell + cell / 2;
        const every = Math.max(1, Math.ceil(14 / cell));
        pen.fillStyle = themeColour("dim");
        if (r % every === 0) {
            pen.textAlign = "right";
            pen.fillText((this.data.ranks_per_entry || 1) > 1 ? "from " + r * this.data.ranks_per_entry : "rank " + r, left - 8, y);
        }
        if (right > 20) {
            const m = MEASURES[this.measure];
            const last = this.value(this.data.steps.length - 1, r);
            const plan = m.planned ? m.planned(this.data, r) : null;
            pen.textAlign = "left";
            pen.fillStyle = themeColour("text");
            pen.fillText(m.format(last) + (plan > 0 && last !== null ? " · " + formatShare(last / plan) : ""), width - right + 8, y);
        }
    }

    /* From the smallest to the largest value; memory from none to what was planned. */
    range() {
        let low = Infinity;
        let high = -Infinity;
        for (let c = 0; c < this.data.steps.length; c++)
            for (let r = 0; r < this.nRanks(); r++) {
                const value = this.value(c, r);
                if (value === null) continue;
                low = Math.min(low, value);
                high = Math.max(high, value);
            }
        if (low > high) return [0, 1];
        if (this.measure === "wait_seconds") return [0, Math.max(0.05, high)];
        if (this.measure === "resident_bytes") return [0, Math.max(high, ...((this.data.plan_bytes || []).filter(isNumber)))];
        return high > low ? [low, high] : [low * 0.9, high * 1.1 || 1];
    }

    colour(value, rank, [low, high]) {
        const m = MEASURES[this.measure];
        const plan = m.planned ? m.planned(this.data, rank) : null;
        if (plan > 0 && value > 1.02 * plan) return themeColour("bad");
        return heatColour((value - low) / (high - low));
    }

    drawLegend([low, high]) {
        const m = MEASURES[this.measure];
        const pen = fitCanvas(this.legend, 96, 10);
        for (let x = 0; x < 96; x++) {
            pen.fillStyle = heatColour(x / 95);
            pen.fillRect(x, 0, 1, 10);
        }
        this.low.textContent = m.format(low);
        this.high.textContent = m.format(high) + (m.planned ? "; above the plan: red" : "");
    }

    /* -- words ------------------------------------------------------------------------------ */

    /* Averages over the newest fifth of the records, so that a start does not count. */
    recent(rank, measure) {
        const n = this.data.steps.length;
        let sum = 0;
        let count = 0;
        for (let c = n - Math.ceil(n / 5); c < n; c++) {
            const value = measure.of(this.data, c, rank);
            if (isNumber(value)) {
                sum += value;
                count++;
            }
        }
        return count > 0 ? sum / count : null;
    }

    findStraggler() {
        const n = this.nRanks();
        if (this.measure === "resident_bytes") return this.tellMemory();
        const waits = [];
        for (let r = 0; r < n; r++) waits.push(this.recent(r, MEASURES.wait_seconds));
        if (n < 2 || waits.some((w) => w === null)) return "";
        const order = waits.map((w, r) => [w, r]).sort((a, b) => a[0] - b[0]);
        const [least, rank] = order[0];
        const middle = order[Math.floor(n / 2)][0];
        if (middle - least < 0.05) return "No rank holds the others up: they wait " + formatShare(least) + " to " + formatShare(order[n - 1][0]) + " of a step.";
        const name = this.rankName(rank);
        return name[0].toUpperCase() + name.slice(1) + " holds the others up: it waits " + formatShare(least) +
            " of a step, the others " + formatShare(order[1][0]) + (n > 2 ? " to " + formatShare(order[n - 1][0]) : "") + ".";
    }

    tellMemory() {
        const m = MEASURES.resident_bytes;
        let worst = null;
        for (let r = 0; r < this.nRanks(); r++) {
            const plan = m.planned(this.data, r);
            const used = this.value(this.data.steps.length - 1, r);
            if (plan > 0 && used !== null && (worst === null || used / plan > worst[0])) worst = [used / plan, r, used, plan];
        }
        if (worst === null) return "";
        return "Nearest to its plan: " + this.rankName(worst[1]) + " with " + formatBytes(worst[2]) + " of " + formatBytes(worst[3]) + " (" + formatShare(worst[0]) + ").";
    }

    readOut(cell) {
        this.cell = cell;
        if (cell === null) this.read.textContent = "";
        else {
            const m = MEASURES[this.measure];
            const value = this.value(cell.column, cell.rank);
            const plan = m.planned ? m.planned(this.data, cell.rank) : null;
            this.read.textContent = "Step " + formatCount(this.data.steps[cell.column]) + ", " + this.rankName(cell.rank) + ": " +
                m.format(value) + (plan > 0 ? " of " + m.format(plan) + " planned" : "");
        }
        this.draw();
    }

    drawCell(pen) {
        if (this.cell === null || this.cell.column >= this.area.columns || this.cell.rank >= this.area.n) return;
        pen.strokeStyle = themeColour("text");
        pen.lineWidth = 2;
        pen.strokeRect(this.area.left + this.cell.column * this.area.w, this.cell.rank * this.area.cell, Math.max(3, this.area.w), this.area.cell - 1);
    }

    pointAt(event) {
        if (!this.area) return;
        const box = this.canvas.getBoundingClientRect();
        const column = Math.floor((event.clientX - box.left - this.area.left) / this.area.w);
        const rank = Math.floor((event.clientY - box.top) / this.area.cell);
        const isInside = column >= 0 && column < this.area.columns && rank >= 0 && rank < this.area.n;
        this.readOut(isInside ? {column, rank} : null);
    }

    keyPressed(event) {
        if (!this.area) return;
        const moves = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
        const move = moves[event.key];
        if (!move) return;
        event.preventDefault();
        const {columns, n} = this.area;
        const from = this.cell || {column: columns - 1, rank: 0};
        this.readOut({
            column: Math.min(columns - 1, Math.max(0, from.column + move[0])),
            rank: Math.min(n - 1, Math.max(0, from.rank + move[1])),
        });
    }
}
