package config

import (
	"fmt"
	"math/bits"
	"regexp"
	"strconv"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// Statuses is a set of HTTP statuses from 100 to 599. The zero Statuses is empty.
type Statuses struct{ bits [10]uint64 }

// Has reports whether status is one of s.
func (s *Statuses) Has(status int) bool {
	return status >= 0 && status < 64*len(s.bits) && s.bits[status/64]>>(status%64)&1 == 1
}

// Empty reports whether s has no status.
func (s *Statuses) Empty() bool {
	n := 0
	for _, b := range s.bits {
		n += bits.OnesCount64(b)
	}
	return n == 0
}

// Ranges returns the statuses of s as they are written: 2xx, 404, 500-503.
func (s *Statuses) Ranges() (all []string) {
	for from := 100; from < 600; from++ {
		if !s.Has(from) {
			continue
		}
		to := from
		for s.Has(to + 1) {
			to++
		}
		switch {
		case from%100 == 0 && to >= from+99:
			to = from + 99
			all = append(all, strconv.Itoa(from/100)+"xx")
		case from == to:
			all = append(all, strconv.Itoa(from))
		default:
			all = append(all, strconv.Itoa(from)+"-"+strconv.Itoa(to))
		}
		from = to
	}
	return all
}

func (s *Statuses) add(from, to int) {
	for status := from; status <= to; status++ {
		s.bits[status/64] |= 1 << (status % 64)
	}
}

// codes are statuses as they are written, one or several.
type codes []code

// A code is 404, 5xx or 500-503.
type code string

// codeForm is what a code looks like.
var codeForm = regexp.MustCompile(`^(?:([1-5])xx|([1-5][0-9][0-9])(?:-([1-5][0-9][0-9]))?)$`)

// Check is form.Checked.
func (code) Check(text string) error {
	_, _, err := parseCode(text)
	return err
}

// Wanted is form.Checked.
func (code) Wanted() (kind, instead string) {
	return "a status", "write for example 404, 5xx or 500-503"
}

// parseCode reads a code as its first and last status.
func parseCode(s string) (from, to int, err error) {
	m := codeForm.FindStringSubmatch(s)
	switch {
	case m == nil:
		return 0, 0, fmt.Errorf("%s is not a status", form.Quote(s))
	case m[1] != "":
		hundreds, _ := strconv.Atoi(m[1])
		return 100 * hundreds, 100*hundreds + 99, nil
	}
	from, _ = strconv.Atoi(m[2])
	if to = from; m[3] != "" {
		to, _ = strconv.Atoi(m[3])
	}
	if to < from {
		return 0, 0, fmt.Errorf("%s ends before it begins", form.Quote(s))
	}
	return from, to, nil
}

// statuses are those of all codes; a code with a problem has none.
func (c codes) statuses() (s Statuses) {
	for _, text := range c {
		if from, to, err := parseCode(string(text)); err == nil {
			s.add(from, to)
		}
	}
	return s
}
