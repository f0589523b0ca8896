package form

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Quote writes a text from a file in a problem, cut short.
func Quote(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
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
