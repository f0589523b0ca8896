package config

import (
	"reflect"
	"slices"
)

// A restart is a limit that counts under another name than before.
type restart struct {
	limit  *Limit
	before string // the ID under which it was counted
}

// restarts returns the limits of is that are probably limits of was under another name: called the same,
// or on the same key with the same rates. Their counts start anew.
func restarts(was, is *Config) (all []restart) {
	counted := func(c *Config, id string) bool {
		return slices.ContainsFunc(c.Limits(), func(l *Limit) bool { return l.ID == id })
	}
	gone := slices.DeleteFunc(was.Limits(), func(l *Limit) bool { return counted(is, l.ID) })
	for _, l := range is.Limits() {
		if counted(was, l.ID) {
			continue
		}
		for _, same := range []func(*Limit) bool{
			func(o *Limit) bool { return o.FullName() == l.FullName() },
			func(o *Limit) bool { return o.Name == l.Name && o.Key.Name == l.Key.Name },
			func(o *Limit) bool { return o.Key.Name == l.Key.Name && reflect.DeepEqual(o.Rates, l.Rates) },
		} {
			if i := slices.IndexFunc(gone, same); i >= 0 {
				all = append(all, restart{l, gone[i].ID})
				gone = slices.Delete(gone, i, i+1)
				break
			}
		}
	}
	return all
}

// keep says how the counts of r are kept.
func (r restart) keep() string { return "write was: " + r.before + " to keep its counts" }

const startsAnew = "starts anew: it was counted as another limit"

// Restarts returns warnings about limits whose counts start anew, because they have other names than in
// was.
func Restarts(was, is *Config) (warnings []Problem) {
	for _, r := range restarts(was, is) {
		warnings = append(warnings, Problem{Position: r.limit.Position, Path: r.limit.FullName(), What: startsAnew, Instead: r.keep()})
	}
	return warnings
}
