package key

import "strings"

// validPointer reports whether p is a JSON Pointer (RFC 6901) to a value inside a document.
func validPointer(p string) bool {
	if p == "" || p[0] != '/' || !printable(p) {
		return false
	}
	for i := range len(p) {
		if p[i] == '~' && (i+1 == len(p) || p[i+1] != '0' && p[i+1] != '1') {
			return false
		}
	}
	return true
}

// segment splits the first name off a pointer that is not empty.
func segment(p string) (name, rest string) {
	name, rest = p[1:], ""
	if i := strings.IndexByte(name, '/'); i >= 0 {
		name, rest = name[:i], name[i:]
	}
	if strings.IndexByte(name, '~') >= 0 {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	}
	return name, rest
}

// pointerTo returns the pointer to the member with this name.
func pointerTo(name string) string {
	return "/" + strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// index parses an array index; -1 if name is not one.
func index(name string) int {
	if name == "" || len(name) > 9 || len(name) > 1 && name[0] == '0' {
		return -1
	}
	n := 0
	for i := range len(name) {
		if name[i] < '0' || '9' < name[i] {
			return -1
		}
		n = n*10 + int(name[i]-'0')
	}
	return n
}
