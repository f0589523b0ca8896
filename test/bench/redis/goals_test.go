package redis

import (
	"fmt"
	"os"
	"text/tabwriter"
)

// A goal is the most that one cell of the table may be, as a ratio to another cell of the
// same run, or by itself.
type goal struct {
	row, variant string
	to           cell // none: most is in µs, or bytes
	most         float64
	beside       *goal // what bare commands are there: less cannot be had in that layout
}

// A cell is a variant in a row.
type cell struct{ row, variant string }

// The rows that goals name.
const (
	newKey, refusedKey = "1/60s, new key", "1/60s, refused"
	few, many, hotKey  = "10/1s, 10,000 keys", "1000/1s, 10,000 keys", "hot key, 1000/1s"
	loneNew, loneFew   = "one per call, new key", "one per call, 10/1s"
	oneLimit, threeOf  = "1 limit on one key", "3 limits on one key"
)

// goals are what the algorithms are held to. What has a goal in µs is meant for a machine
// on which floor takes about 3.
func goals() (all []goal) {
	add := func(row, variant string, to cell, most float64) {
		all = append(all, goal{row: row, variant: variant, to: to, most: most})
	}
	beside := func(row, variant string, to cell) {
		all[len(all)-1].beside = &goal{row: row, variant: variant, to: to}
	}
	// sliding_log was to take half of what token_bucket took before it was made cheaper
	// itself, 0.65 of it on a hot key. What that was in units of the floor of its run:
	for _, was := range []struct {
		row              string
		bucket, of, part float64
	}{{newKey, 13.7, 3.1, 0.5}, {refusedKey, 11.3, 4.2, 0.5}, {few, 12.9, 3.2, 0.5}, {many, 14.7, 3.2, 0.5}, {hotKey, 2.2, 2.0, 0.65}, {loneNew, 32, 9.6, 0.5}} {
		add(was.row, "sliding_log", cell{was.row, "floor"}, min(2, was.part*was.bucket/was.of))
	}
	add(threeOf, "sliding_log", cell{threeOf, "token_bucket"}, 0.5)
	for _, r := range []string{newKey, refusedKey, few, many, hotKey, loneNew, loneFew} {
		add(r, "conversion", cell{r, "sliding_log"}, 2)
	}
	for _, r := range []string{few, many} {
		add(r, "gcra", cell{}, 5)
		add(r, "fixed_window", cell{r, "floor"}, 1.5)
	}
	for _, v := range []string{"token_bucket", "sliding_log", "gcra", "fixed_window", "sliding_window", "cooldown", "concurrent", "distinct"} {
		add(loneNew, v, cell{loneNew, "redisson"}, 1.5)
		add(loneFew, v, cell{loneFew, "redisson"}, 1.5)
	}
	for _, v := range []string{"sliding_log", "gcra", "fixed_window", "sliding_window", "cooldown"} {
		add(threeOf, v, cell{oneLimit, v}, 1.8)
	}
	// Three logs of their own are three times the commands.
	for v, bare := range map[string]string{"token_bucket": "bare", "concurrent": "bare", "distinct": "bare_uses"} {
		add(threeOf, v, cell{oneLimit, v}, 1.8)
		beside(threeOf, bare, cell{oneLimit, bare})
	}
	add(perCall, "token_bucket", cell{}, 25)
	add(perRequest, "token_bucket", cell{}, 13)
	for _, f := range fills() {
		add(f.name(), "sliding_log", cell{f.name(), "token_bucket"}, 0.75)
	}
	add(merged().name(), "sliding_log", cell{merged().name(), "token_bucket"}, 0.5)
	one := fills()[0].name()
	add(one, "token_bucket", cell{}, 250)
	beside(one, "bare", cell{})
	add(fullRow, "refused", cell{}, 1000)
	add(fullRow, "refused, as the caller sees it", cell{}, 1000)
	add(fullRow, otherAfter, cell{fullRow, otherBefore}, 1.5)
	add(mirrorRow, "µs", cell{few, "token_bucket"}, 0.1)
	return all
}

// name says what is measured.
func (g goal) name() string {
	what := g.row + ": " + g.variant
	if g.to != (cell{}) {
		what += " / " + g.to.variant
		if g.to.row != g.row {
			what += " in " + g.to.row
		}
	}
	return what
}

// of is what the table says of g.
func (g goal) of(table table) (is float64, measured bool) {
	is, measured = table[g.row][g.variant]
	if g.to == (cell{}) {
		return is, measured
	}
	over, ok := table[g.to.row][g.to.variant]
	is /= over
	if one, three := table[oneLimit]["floor"], table[threeOf]["floor"]; g.row == threeOf && g.to.row == oneLimit && one > 0 && three > 0 {
		// Three limits are three calls of floor, each of which costs what one does: what is
		// more or less is what the machine was slower or faster in that minute.
		is *= 3 * one / three
	}
	return is, measured && ok
}

// showGoals prints which of them the table holds.
func showGoals(table table) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ngoal\tat most\tmeasured\tholds\t")
	for _, g := range goals() {
		is, measured := g.of(table)
		if !measured {
			continue
		}
		holds := "yes"
		if is > g.most {
			holds = "no"
		}
		if g.beside != nil {
			if bare, ok := g.beside.of(table); ok {
				holds += fmt.Sprintf("; %s by itself: %.2f", g.beside.variant, bare)
			}
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t\n", g.name(), g.most, is, holds)
	}
	w.Flush()
}
