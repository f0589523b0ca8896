package lock

import (
	"fmt"
	"strings"
)

// checkName returns an error that wraps ErrBadName unless every key and channel derived
// from name hashes to the slot of name itself. A name must have no braces, or its first "{"
// must begin a hash tag that is closed and not empty.
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty", ErrBadName)
	}
	open := strings.IndexByte(name, '{')
	if open < 0 {
		if strings.IndexByte(name, '}') >= 0 {
			return fmt.Errorf("%w: %q has a } without a {; leave braces out", ErrBadName, name)
		}
		return nil
	}
	if strings.IndexByte(name[open+1:], '}') < 1 {
		return fmt.Errorf("%w: the hash tag of %q is empty or not closed; write {tag} or leave braces out", ErrBadName, name)
	}
	return nil
}

// tagged reports whether name has a hash tag.
func tagged(name string) bool { return strings.IndexByte(name, '{') >= 0 }

// prefixed returns the key or channel "prefix:{name}" in the slot of name.
func prefixed(prefix, name string) string {
	if tagged(name) {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// suffixed returns the key "{name}:suffix" in the slot of name.
func suffixed(name, suffix string) string {
	if tagged(name) {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}
