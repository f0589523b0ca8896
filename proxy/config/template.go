package config

import (
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// A template is the parsed name of Redisson limiters.
type template struct {
	name       string
	start, end string // text around {key}; without {key}, the name is start
	keyed      bool
	digits     bool // the key is a number, perhaps with a plus before it
	form       limiter.RedissonFormat
}

func newTemplate(f *limitForm, limit *Limit) template {
	t := template{name: f.RedissonName, form: limit.RedissonFormat}
	t.start, t.end, t.keyed = strings.Cut(f.RedissonName, "{key}")
	steps := limit.Key.Normalize
	t.digits = limit.Key.OnMissing != key.Use && limit.Key.OnInvalid != key.Use && len(steps) > 0 && slices.Contains([]key.Step{key.Digits, key.E164}, steps[len(steps)-1])
	return t
}

// accepts reports whether text can be part of a key.
func (t template) accepts(text string) bool {
	return t.keyed && !strings.ContainsAny(text, "{}") && (!t.digits || strings.Trim(text, "+0123456789") == "")
}

// overlaps reports whether t and other can result in the same name.
func (t template) overlaps(other template) bool {
	if !t.keyed {
		t, other = other, t
	}
	if !t.keyed {
		return t.start == other.start
	}
	if !other.keyed {
		text, ok := strings.CutPrefix(other.start, t.start)
		text, end := strings.CutSuffix(text, t.end)
		return ok && end && t.accepts(text)
	}
	return t.opens(other) && t.closes(other)
}

// opens reports whether the names of both can begin in the same way: the longer start is
// then a part of the other's key.
func (t template) opens(other template) bool {
	if len(t.start) > len(other.start) {
		t, other = other, t
	}
	more, ok := strings.CutPrefix(other.start, t.start)
	return ok && t.accepts(more)
}

func (t template) closes(other template) bool {
	if len(t.end) > len(other.end) {
		t, other = other, t
	}
	more, ok := strings.CutSuffix(other.end, t.end)
	return ok && t.accepts(more)
}
