package lock

import (
	"fmt"
	"strings"
)

// checkName returns an error that wraps ErrInvalidName unless every key and channel
// derived from name hashes to the slot of name itself. A valid name has either no braces,
// or its first "{" starts a hash tag that is closed and not empty.
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	}
	open := strings.IndexByte(name, '{')
	if open < 0 {
		if strings.IndexByte(name, '}') >= 0 {
			return fmt.Errorf("%w: %q has a } without a {; leave braces out", ErrInvalidName, name)
		}
		return nil
	}
	if strings.IndexByte(name[open+1:], '}') < 1 {
		return fmt.Errorf("%w: the hash tag of %q is empty or not closed; write {tag} or leave braces out", ErrInvalidName, name)
	}
	return nil
}

// hasHashTag reports whether name has a hash tag, which determines its cluster slot.
func hasHashTag(name string) bool { return strings.IndexByte(name, '{') >= 0 }

// prefixedKey returns the key or channel "prefix:{name}", which is in the slot of name.
func prefixedKey(prefix, name string) string {
	if hasHashTag(name) {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// suffixedKey returns the key "{name}:suffix", which is in the slot of name.
func suffixedKey(name, suffix string) string {
	if hasHashTag(name) {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}
