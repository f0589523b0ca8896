package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/limiter"
)

// A duration is written with its units: 50ms, 1h30m, 1d, 2w.
type duration time.Duration

// MarshalYAML writes d as it is read.
func (d duration) MarshalYAML() (any, error) { return limiter.FormatDuration(time.Duration(d)), nil }

// durations are one or several of them.
type durations []duration

// A secret is text that is never shown.
type secret string

// MarshalYAML hides s, but not that it is empty. What stands instead is long
// enough to be any secret.
func (s secret) MarshalYAML() (any, error) {
	if s == "" {
		return "", nil
	}
	return "(hidden by weir check --effective)", nil
}

// A secretURL is a URL that is never shown, but that there is one.
type secretURL string

// hiddenURL stands for any secretURL; nobody can be reached there (RFC 6761).
const hiddenURL = "https://hidden.invalid/"

// MarshalYAML hides u, but not that it is empty.
func (u secretURL) MarshalYAML() (any, error) {
	if u == "" {
		return "", nil
	}
	return hiddenURL, nil
}

// A list is texts, of which a single one may stand without brackets.
type list []string

// whole are the numbers that all YAML readers read alike.
var whole = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// text decodes a scalar that is text, and one of t.enum if there are any.
func (d *decoder) text(n *yaml.Node, p place, v reflect.Value, t tag) {
	s, ok := d.string(n, p)
	if !ok {
		return
	}
	if s == "" && (t.standard == nil || *t.standard != "") {
		d.add(p, "is empty", "give it a value, or leave it out")
		return
	}
	if len(t.enum) > 0 && !slices.Contains(t.enum, s) {
		d.add(p, fmt.Sprintf("%q is not an allowed value", s), suggest(s, t.enum))
		return
	}
	if (v.Type() == reflect.TypeFor[secret]() || v.Type() == reflect.TypeFor[secretURL]()) && s != "" && n.Value == s {
		d.bare = append(d.bare, p)
	}
	v.SetString(s)
}

// string is the text of n, environment filled in.
func (d *decoder) string(n *yaml.Node, p place) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		d.add(p, "want text, got "+kindName(n), "write one value")
		return "", false
	}
	if tag := n.ShortTag(); tag != "!!str" {
		want, instead := "text", "put it in quotes"
		if isRate(p.path) {
			want, instead = "a rate", "say within which time, for example "+perMinute(n.Value)
		}
		d.add(p, "want "+want+", got "+kindName(n), instead)
		return "", false
	}
	s, ok := d.expand(n, p)
	if !ok {
		return "", false
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		d.add(p, "has a control character or a line break", "write it on one line, in plain characters")
		return "", false
	}
	return s, true
}

// rateField finds the paths of fields that hold a rate.
var rateField = regexp.MustCompile(`\.(rate|rates(\[\d+\])?|new_keys|overrides\..+)$`)

// isRate reports whether the field at path holds a rate.
func isRate(path string) bool { return rateField.MatchString(path) }

// perMinute is a rate of that number, or of another if there is none such.
func perMinute(number string) string {
	if text := number + "/1m"; whole.MatchString(number) {
		if _, err := limiter.ParseRate(text); err == nil {
			return text
		}
	}
	return "5/1m"
}

// plain is the text of a scalar that is not text: a number, a duration, true or
// false. It may be quoted only to hold ${NAME}.
func (d *decoder) plain(n *yaml.Node, p place, want string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		d.add(p, "want "+want+", got "+kindName(n), "write one value")
		return "", false
	}
	if quoted(n) && !strings.Contains(n.Value, "${") {
		d.add(p, "want "+want+", got text in quotes", "write it without quotes")
		return "", false
	}
	return d.expand(n, p)
}

// number decodes a whole number in decimal digits. Other ways of writing one
// mean different things to different readers of YAML: 0100 is 64 to some.
func (d *decoder) number(n *yaml.Node, p place, v reflect.Value, t tag) {
	s, ok := d.plain(n, p, "a whole number")
	if !ok {
		return
	}
	i, err := strconv.Atoi(s)
	switch {
	case !whole.MatchString(s) && err == nil:
		d.add(p, fmt.Sprintf("%q can be read as another number", s), "write it without a sign and leading zeros")
	case err != nil:
		d.add(p, fmt.Sprintf("want a whole number, got %q", s), "write decimal digits only, for example 5")
	case t.max != 0 && (i < t.min || i > t.max):
		d.add(p, fmt.Sprintf("%d is out of range", i), between(t.min, t.max))
	default:
		v.SetInt(int64(i))
	}
}

// between says what a number may be.
func between(low, high int) string {
	if low == high {
		return fmt.Sprintf("write %d", low)
	}
	return fmt.Sprintf("write %d to %d", low, high)
}

// boolean decodes true or false, of which YAML 1.1 has many other spellings.
func (d *decoder) boolean(n *yaml.Node, p place, v reflect.Value) {
	s, ok := d.plain(n, p, "true or false")
	if !ok {
		return
	}
	switch s {
	case "true", "false":
		v.SetBool(s == "true")
	default:
		d.add(p, fmt.Sprintf("want true or false, got %q", s), "write true or false")
	}
}

// duration decodes a duration with units.
func (d *decoder) duration(n *yaml.Node, p place, v reflect.Value) {
	if n.Kind != yaml.ScalarNode {
		d.add(p, "want a duration, got "+kindName(n), "write a number with a unit, for example 5s")
		return
	}
	s, ok := d.expand(n, p)
	if !ok {
		return
	}
	length, err := limiter.ParseDuration(s)
	switch {
	case whole.MatchString(s):
		d.add(p, s+" has no unit", "write a number with a unit: ms, s, m, h, d or w, for example 5s")
	case err != nil:
		d.add(p, fmt.Sprintf("%q is not a duration", s), "write numbers with units: ms, s, m, h, d or w, for example 1h30m")
	case length <= 0:
		d.add(p, "must be longer than 0s", "write for example 1s")
	default:
		v.SetInt(int64(length))
	}
}

// list decodes a list of texts, or a single one.
func (d *decoder) list(n *yaml.Node, p place, v reflect.Value, t tag) {
	if n.Kind == yaml.MappingNode {
		d.add(p, "want a list, got a mapping", "write [one, two], or one value")
		return
	}
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	v.Set(reflect.MakeSlice(v.Type(), len(nodes), len(nodes)))
	for i, c := range nodes {
		at := p
		if n.Kind == yaml.SequenceNode {
			at = place{path: p.path + "[" + strconv.Itoa(i) + "]"}
		}
		d.value(c, at, v.Index(i), t)
	}
}
