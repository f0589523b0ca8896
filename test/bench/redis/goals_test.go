package redis

import (
	"fmt"
	"os"
	"text/tabwriter"
)

// A goal is the most that one cell of the table of CPU may be, as a ratio to another
// cell of the same run, or in µs.
type goal struct {
	row, variant string
	to           cell // none: most is in µs
	most         float64
}

// A cell is a variant in a row.
type cell struct{ row, variant string }

// goals are what the algorithms are held to. What has a goal in µs is meant for a machine
// on which floor takes about 3.
func goals() (all []goal) {
	add := func(row, variant string, to cell, most float64) { all = append(all, goal{row, variant, to, most}) }
	for _, r := range []string{"1/60s, new key", "1/60s, refused", "10/1s, 10,000 keys", "1000/1s, 10,000 keys", "3 limits on one key"} {
		add(r, "sliding_log", cell{r, "token_bucket"}, 0.5)
	}
	const hot, lone = "hot key, 1000/1s", "one per call, new key"
	for _, r := range []string{"1/60s, new key", "10/1s, 10,000 keys", "1000/1s, 10,000 keys"} {
		add(r, "sliding_log", cell{r, "floor"}, 2)
	}
	for _, r := range []string{"10/1s, 10,000 keys", "1000/1s, 10,000 keys"} {
		add(r, "gcra", cell{}, 5)
		add(r, "fixed_window", cell{r, "floor"}, 1.5)
	}
	for _, v := range []string{"token_bucket", "sliding_log", "gcra", "fixed_window", "cooldown"} {
		add(lone, v, cell{lone, "redisson"}, 1.5)
		add("one per call, 10/1s", v, cell{"one per call, 10/1s", "redisson"}, 1.5)
	}
	for _, v := range []string{"token_bucket", "sliding_log", "gcra", "fixed_window", "cooldown"} {
		add("3 limits on one key", v, cell{"1 limit on one key", v}, 1.8)
	}
	// Six keys cannot be had for less than twice two: bare is the floor of that layout.
	add("3 limits on one key", "token_bucket", cell{"3 limits on one key", "bare"}, 1.5)
	// token_bucket has become cheaper than it was when sliding_log was to take a part of it: a
	// lone one took 3.3 of floor, and one on a hot key 1.1. Half of a lone one is less than
	// floor now.
	add(lone, "sliding_log", cell{lone, "floor"}, 0.5*3.3)
	add(hot, "sliding_log", cell{hot, "floor"}, 0.65*1.1)
	add(perCall, "token_bucket", cell{}, 25)
	add(perRequest, "token_bucket", cell{}, 13)
	return all
}

// showGoals prints which of them the table holds.
func showGoals(table map[string]map[string]float64) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ngoal\tis\tat most\t")
	for _, g := range goals() {
		is, measured := table[g.row][g.variant]
		what := g.row + ": " + g.variant + ", µs"
		if g.to != (cell{}) {
			over, ok := table[g.to.row][g.to.variant]
			is, measured = is/over, measured && ok
			what = g.row + ": " + g.variant + " / " + g.to.variant
			if g.to.row != g.row {
				what += " in " + g.to.row
			}
		}
		switch {
		case !measured:
		case is <= g.most:
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\t\n", what, is, g.most)
		default:
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\tmissed\n", what, is, g.most)
		}
	}
	w.Flush()
}
