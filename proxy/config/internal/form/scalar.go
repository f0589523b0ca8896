package form

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
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

// A Text is a value with a syntax of its own.
type Text interface {
	// Parse sets the value. Its error says what is wrong with text and, after a semicolon, what to write instead.
	Parse(text string) error
	// Wanted names the kind of value, which need not be in quotes, and says what to write. The kind of a text is empty.
	Wanted() (kind, instead string)
	// Written returns the value as it is written: a text, or a number.
	Written() any
}

// textOf returns v as a Text; nil if it is none.
func textOf(v reflect.Value) Text {
	if !v.CanAddr() {
		return nil
	}
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		return (*duration)(p)
	case *netip.Prefix:
		return (*network)(p)
	case Text:
		return p
	}
	return nil
}

// A duration is written with its units: 50ms, 1h30m, 1d, 2w.
type duration time.Duration

// Parse is Text.
func (d *duration) Parse(text string) error {
	length, err := limiter.ParseDuration(text)
	switch {
	case whole.MatchString(text):
		return fmt.Errorf("%s has no unit; write a number with a unit: ms, s, m, h, d or w, for example 5s", text)
	case err != nil:
		return fmt.Errorf("%q is not a duration; write numbers with units: ms, s, m, h, d or w, for example 1h30m", text)
	case length <= 0:
		return errors.New("must be longer than 0s; write for example 1s")
	}
	*d = duration(length)
	return nil
}

// Wanted is Text.
func (*duration) Wanted() (kind, instead string) {
	return "a duration", "write a number with a unit, for example 5s"
}

// Written is Text.
func (d *duration) Written() any { return limiter.FormatDuration(time.Duration(*d)) }

// text decodes a scalar that is text, and one of t.Enum if there are any.
func (d *decoder) text(n *yaml.Node, p Location, v reflect.Value, t Tag) {
	s, ok := d.string(n, p)
	if !ok {
		return
	}
	if s == "" && (t.Default == nil || *t.Default != "") {
		d.Add(p, "is empty", "give it a value, or leave it out")
		return
	}
	if len(t.Enum) > 0 && !slices.Contains(t.Enum, s) {
		d.Add(p, fmt.Sprintf("%q is not an allowed value", s), Suggest(s, t.Enum))
		return
	}
	if t.hidden != "" && s != "" && n.Value == s {
		d.Secrets = append(d.Secrets, Problem{p.Position, p.Path, "the file contains a secret in clear text", `write "${NAME}", and set NAME where Weir runs`})
	}
	of := textOf(v)
	if of == nil {
		v.SetString(s)
	} else if err := of.Parse(s); err != nil {
		d.addLate(p, err.Error())
	}
}

// addLate reports a problem with a value whose kind is as wanted: what is wrong and, after a semicolon, what to write instead.
func (d *decoder) addLate(p Location, text string) {
	what, instead, _ := strings.Cut(text, "; ")
	d.late = append(d.late, d.unfilled(Problem{p.Position, p.Path, what, instead}))
}

// string is the text of n, environment filled in.
func (d *decoder) string(n *yaml.Node, p Location) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		d.Add(p, "want text, got "+kindName(n), cmp.Or(d.joined(p.Path, n), "write one value"))
		return "", false
	}
	if tag := n.ShortTag(); tag != "!!str" {
		want, instead := d.hint(p.Path, n.Value)
		if want == "" {
			want, instead = "text", "put it in quotes"
		}
		d.Add(p, "want "+want+", got "+kindName(n), instead)
		return "", false
	}
	s, ok := d.expand(n, p)
	if !ok {
		return "", false
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		d.Add(p, "has a control character or a line break", "write it on one line, in plain characters")
		return "", false
	}
	return s, true
}

// plain is the text of a scalar that is not text: a number, a duration, true or
// false. It may be quoted only to hold ${NAME}.
func (d *decoder) plain(n *yaml.Node, p Location, want string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		d.Add(p, "want "+want+", got "+kindName(n), "write one value")
		return "", false
	}
	if quoted(n) && !strings.Contains(n.Value, "${") {
		d.Add(p, "want "+want+", got text in quotes", "write it without quotes")
		return "", false
	}
	return d.expand(n, p)
}

// number decodes a whole number in decimal digits. Other ways of writing one
// mean different things to different readers of YAML: 0100 is 64 to some.
func (d *decoder) number(n *yaml.Node, p Location, v reflect.Value, t Tag) {
	s, ok := d.plain(n, p, "a whole number")
	if !ok {
		return
	}
	i, err := strconv.Atoi(s)
	switch {
	case !whole.MatchString(s) && err == nil:
		d.Add(p, fmt.Sprintf("%q can be read as another number", s), "write it without a sign and leading zeros")
	case err != nil:
		d.Add(p, fmt.Sprintf("want a whole number, got %q", s), "write decimal digits only, for example 5")
	case t.max != 0 && (i < t.min || i > t.max):
		d.Add(p, fmt.Sprintf("%d is out of range", i), between(t.min, t.max))
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
func (d *decoder) boolean(n *yaml.Node, p Location, v reflect.Value) {
	s, ok := d.plain(n, p, "true or false")
	if !ok {
		return
	}
	if v.SetBool(s == "true"); s != "true" && s != "false" {
		d.Add(p, fmt.Sprintf("want true or false, got %q", s), "write true or false")
	}
}

// A network is written as 10.0.0.0/8, fd00::/8 or a single address.
type network netip.Prefix

// Parse is Text.
func (n *network) Parse(text string) error {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		*n = network(netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		return nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return errors.New(Quote(text) + " is not a network; write for example 10.0.0.0/8, fd00::/8 or 192.0.2.1")
	case p.Addr().Is4In6():
		return errors.New(Quote(text) + " is IPv4 written as IPv6; write it as IPv4, for example 10.0.0.0/8")
	case p != p.Masked():
		return fmt.Errorf("%s has bits set beyond its prefix length; write %s, or %s for the one address", Quote(text), p.Masked(), p.Addr())
	}
	*n = network(p)
	return nil
}

// Wanted is Text.
func (*network) Wanted() (kind, instead string) { return "", "" }

// Written is Text.
func (n *network) Written() any {
	if p := netip.Prefix(*n); !p.IsSingleIP() {
		return p.String()
	}
	return netip.Prefix(*n).Addr().String()
}

// parsed decodes a value that is no text. What is wanted is a kind of value; instead says what to write.
func (d *decoder) parsed(n *yaml.Node, p Location, of Text) {
	kind, instead := of.Wanted()
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!str" && !(n.ShortTag() == "!!float" && kind == "a number") {
		d.Add(p, "want "+kind+", got "+kindName(n), instead)
		return
	}
	s, ok := d.expand(n, p)
	if !ok {
		return
	}
	if err := of.Parse(s); err != nil {
		what, better, _ := strings.Cut(err.Error(), "; ")
		d.Add(p, what, cmp.Or(better, instead))
	}
}

// mostQuoted is the number of bytes of a text that Quote writes, and cutMark what stands for the others.
const mostQuoted, cutMark = 80, "…"

// Quote writes a text from a file in a problem, cut short.
func Quote(s string) string {
	if len(s) > mostQuoted {
		s = strings.ToValidUTF8(s[:mostQuoted], "") + cutMark
	}
	return strconv.Quote(s)
}

// hostname is a name in the domain name system, or an IPv4 address.
var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)*\.?$`)

// IsHostname reports whether s is written as a name in the domain name system. An IPv4
// address is.
func IsHostname(s string) bool { return len(s) <= 253 && hostname.MatchString(s) }

// IsHost reports whether s is an IP address or a hostname.
func IsHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || IsHostname(s)
}

// SortedKeys returns the keys of m in ascending order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// whole are the numbers that all YAML readers read alike.
var whole = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// IsWhole reports whether text is a whole number that all YAML readers read alike.
func IsWhole(text string) bool { return whole.MatchString(text) }

// IsPort reports whether text is the number of a port.
func IsPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 && IsWhole(text)
}

// A Tag is what a field of a form may be, as its struct tag says.
type Tag struct {
	required bool
	Enum     []string
	Default  *string // nil for none
	min, max int     // of a number; 0 and 0 mean any
	hidden   string  // what is shown instead of a secret, with {name} for the field Name beside it; "" if it is none
	empty    string  // what is wrong with an empty list and, after a semicolon, what to write instead; "" if it may be empty
	single   bool    // a list of one is written without brackets
}

// TagOf reads the tag of f, a field of a form. Words that only the JSON Schema needs
// are left to it.
func TagOf(f reflect.StructField) Tag {
	t := Tag{hidden: f.Tag.Get("hidden"), empty: f.Tag.Get("empty"), single: strings.HasSuffix(f.Tag.Get("yaml"), ",single")}
	if t.hidden == "true" {
		t.hidden = "(hidden by weir check --effective)"
	}
	for word := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "required":
			t.required = true
		case "enum":
			t.Enum = append(t.Enum, value)
		case "default":
			t.Default = &value
		case "minimum":
			t.min, _ = strconv.Atoi(value)
		case "maximum":
			t.max, _ = strconv.Atoi(value)
		}
	}
	return t
}

// FieldName is what f is called in YAML; "" if it does not stand there.
func FieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return strings.TrimPrefix(name, "-")
}

// FieldNames are the names of the fields of t, in their order.
func FieldNames(t reflect.Type) []string {
	var names []string
	for field := range t.Fields() {
		if name := FieldName(field); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// FieldIndex finds a field of t, which may be nil, by its name in YAML.
func FieldIndex(t reflect.Type, name string) (int, bool) {
	for i := 0; t != nil && i < t.NumField(); i++ {
		if name != "" && FieldName(t.Field(i)) == name {
			return i, true
		}
	}
	return 0, false
}

// ShortOf returns the field of t, a form or a pointer to one, with the tag short: a value that is not a mapping is
// decoded into it.
func ShortOf(t reflect.Type) (index int, ok bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		if t.Field(i).Tag.Get("short") != "" {
			return i, true
		}
	}
	return 0, false
}

// Field returns the pointer to a field of a form, a pointer to a struct, by its name in YAML.
func Field(form any, name string) any {
	v := reflect.ValueOf(form).Elem()
	index, _ := FieldIndex(v.Type(), name)
	return v.Field(index).Addr().Interface()
}
