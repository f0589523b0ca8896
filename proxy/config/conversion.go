package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// conversion compiles the conversion of a limit, which is an algorithm.
func (l *limits) conversion(f *limitForm, limit *Limit) {
	if !l.Given(&f.Conversion) {
		if l.Given(&f.Memory) {
			l.Wrong(&f.Memory, "without conversion there is nothing to remember", "write conversion: beside it, for example 35%, or leave memory out")
		}
		return
	}
	l.without(f, "conversion", "budget", "concurrent", "distinct", "cooldown", "burst", "redisson_name", "redisson_version")
	if f.ReturnOn == nil {
		l.Wrong(&f.Conversion, "without return_on no request is confirmed", "write return_on: {route: NAME, key: KEY} beside it")
	}
	limit.Algorithm, limit.Burst, limit.Conversion = limiter.Conversion, 0, l.percentage(&f.Conversion, 100)
	l.memory(f, limit)
}

// memory compiles the memory of a conversion, which all of its windows have.
func (l *limits) memory(f *limitForm, limit *Limit) {
	if !l.Given(&f.Memory) {
		return
	}
	limit.Memory = time.Duration(f.Memory)
	windows := slices.Clone(limit.Rates)
	for _, rates := range limit.Overrides {
		windows = append(windows, rates...)
	}
	for _, rates := range limit.Plans {
		windows = append(windows, rates...)
	}
	for _, rate := range windows {
		one := limiter.Limit{Name: "x", Rate: limiter.Rate{Count: 1, Window: rate.Window}, Algorithm: limiter.Conversion, Noted: true, Conversion: 1, Memory: limit.Memory}
		if one.Check() != nil {
			l.Wrong(&f.Memory, "is not 2 to 31 whole days, or not longer than a window", "write for example 14d, longer than each window")
			return
		}
	}
}

// percentage parses 1% to that of most; other texts are reported.
func (l *loader) percentage(text *string, most int) int {
	percent, is := strings.CutSuffix(*text, "%")
	n, err := strconv.Atoi(percent)
	if *text != "" && (!is || err != nil || n < 1 || n > most || !form.IsWhole(percent)) {
		l.Wrong(text, form.Quote(*text)+" is not a percentage", "write 1% to "+strconv.Itoa(most)+"%, for example 35%")
	}
	return n
}
