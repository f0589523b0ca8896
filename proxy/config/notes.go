package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

// Notes returns remarks for operators about a valid configuration: guarantees that are
// weaker than they could be.
func (c *Config) Notes() []string {
	var notes []string
	switch {
	case c.Privacy.HashSecret != "":
	case c.Store == StoreRedis:
		notes = append(notes, "anyone who can read Redis can recover keys such as phone numbers by brute force; set privacy.hash_secret")
	case c.hasSensitiveKeys():
		notes = append(notes, "without privacy.hash_secret, key hashes in the log change at every restart")
	}
	for _, note := range []string{c.formNote(), c.formatNote(), c.regionNote(), c.caseNote(), c.scopeNote()} {
		if note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

// hasSensitiveKeys reports whether a key is sensitive, so that operators go by its hash.
func (c *Config) hasSensitiveKeys() bool {
	for _, s := range c.Keys {
		if s.Sensitive {
			return true
		}
	}
	return false
}

// LastKey returns the last parameter of the path of r, if a list or a limit in enforce mode
// reads it; otherwise "".
func (r *Route) LastKey() string {
	if len(r.Match.Params) == 0 {
		return ""
	}
	last := r.Match.Params[len(r.Match.Params)-1]
	for read := range r.Reads() {
		if read.Mode == Enforce && read.Purpose != ForBalance && slices.Contains(read.Key.Origins(), key.PathParameter(last)) {
			return last
		}
	}
	return ""
}

// formatNote describes routes at which a dot in a key at the end of the path is refused, and
// what to write instead; "" if there are none.
func (c *Config) formatNote() string {
	var names []string
	for _, r := range c.Routes {
		if last := r.LastKey(); last != "" && strings.HasSuffix(strings.TrimSuffix(r.Match.Path, "/"), "/{"+last+"}") {
			names = append(names, r.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "a dot in the key at the end of the path is refused with 400 at " + strings.Join(names, ", ") + ": some servers, such as Rails, read 7.json as 7; write a regexp, {" + "id:[^/]+} for example, if the upstream reads the whole text"
}

// regionNote describes keys whose numbers an upstream may take for others, and what to write; "" if
// there are none.
func (c *Config) regionNote() string {
	names := c.keysThat(func(s *key.Spec) bool { return s.Phone != nil && s.Phone.HasRegion() && s.SetHeader == "" })
	if names == "" {
		return ""
	}
	return "with default_region the same digits can be two phone numbers, one with and one without a plus, and an upstream that drops the plus takes one for the other; write set_header for " + names + ", and read the number from that field"
}

// caseNote describes keys whose spellings lower leaves apart, and what to write; "" if there are none.
func (c *Config) caseNote() string {
	names := c.keysThat(func(s *key.Spec) bool {
		has := func(step key.Step) bool { return slices.Contains(s.Normalize, step) }
		return has(key.Lower) && !has(key.NFKC) && !has(key.Fold) && s.From.Source.IsSpelled() && !s.From.Source.IsField()
	})
	if names == "" {
		return ""
	}
	return "with lower alone, full-width letters, the two forms of é and ſ are other keys than b, é and s, although many databases find the same record by them; write normalize: [trim, nfkc, fold] for " + names + ", unless the upstream compares bytes"
}

// keysThat returns the names of the keys that are so, and of the limits that have such a key of their own.
func (c *Config) keysThat(are func(*key.Spec) bool) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.Keys)) {
		if are(c.Keys[name]) {
			names = append(names, name)
		}
	}
	for _, l := range c.Limits() {
		for read := range l.Reads() {
			if are(read.Key) && c.Keys[read.Key.Name] != read.Key && !slices.Contains(names, l.FullName()) {
				names = append(names, l.FullName())
			}
		}
	}
	return strings.Join(names, ", ")
}
