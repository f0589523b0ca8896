package config

import (
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// conversion compiles the conversion of a limit, which is an algorithm.
func (l *limits) conversion(f *limitForm, limit *Limit) {
	if !l.Given(&f.Conversion) {
		return
	}
	l.without(f, "conversion", "budget", "concurrent", "distinct", "cooldown", "burst", "redisson_name", "redisson_version")
	if f.ReturnOn == nil {
		l.Wrong(&f.Conversion, "without return_on no request is confirmed", "write return_on: {route: NAME, key: KEY} beside it")
	}
	limit.Algorithm, limit.Burst, limit.Conversion = limiter.Conversion, 0, l.percentage(&f.Conversion, 100)
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
