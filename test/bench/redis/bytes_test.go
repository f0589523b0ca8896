package redis

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A fill is how often a key is asked for before its bytes are counted.
type fill struct {
	rate  limiter.Rate
	taken int
}

// name is that of its row.
func (f fill) name() string { return fmt.Sprintf("bytes, %s, %d taken", f.rate, f.taken) }

// fills are those of permits that are kept with their ids; merged is of one whose are not.
func fills() []fill {
	return []fill{{rate(1, time.Minute), 1}, {rate(10, time.Minute), 10}, {rate(100, time.Minute), 100}}
}

func merged() fill { return fill{rate(10_000, 4*time.Second), 3050} }

// measureBytes prints what one key takes, all its Redis keys together, by MEMORY USAGE:
// names, values and what Redis needs to hold them; not its part of the key space's tables.
func measureBytes(b *testing.B, table table) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	kept := slices.DeleteFunc(variants(), func(v variant) bool { return v.name == "floor" })
	var names []string
	for _, v := range kept {
		names = append(names, v.name)
	}
	fmt.Fprintln(w, "\nbytes a key (x token_bucket)\t"+strings.Join(names, "\t")+"\t")
	for _, f := range append(fills(), merged()) {
		line := f.name()
		for _, v := range kept {
			if n := f.bytes(b, v); n > 0 {
				table.set(f.name(), v.name, n)
			}
		}
		for _, name := range names {
			if n, ok := table[f.name()][name]; ok {
				line += fmt.Sprintf("\t%.0f (%.2f)", n, n/table[f.name()]["token_bucket"])
			} else {
				line += "\t-"
			}
		}
		fmt.Fprintln(w, line+"\t")
	}
	w.Flush()
}

// bytes is what a key of v takes then; 0 if v cannot do that.
func (f fill) bytes(b *testing.B, v variant) float64 {
	s := newStage(b)
	t := v.call(b, s, []limiter.Rate{f.rate}, 1)
	if t == nil {
		return 0
	}
	s.do("flushall")
	if v.prepare != nil {
		v.prepare(s, []limiter.Rate{f.rate}, []string{keyText(0)})
	}
	for range f.taken {
		s.send(t.with(nil, func(int) string { return keyText(0) }, newID))
		if f.taken > 1000 {
			s.nextMillisecond()
		}
	}
	return s.bytes(keyText(0))
}
