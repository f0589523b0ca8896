package http1

import "encoding/binary"

// nameOf returns the Name of s, in any case, or Other.
func nameOf(s string) Name {
	if len(s) > maxName {
		return Other
	}
	for n := Name(nameStart[len(s)]); n < Name(nameStart[len(s)+1]); n++ {
		if row := n.row(); row[0]|0x20 == s[0]|0x20 && equalFoldLower(s, row[:len(s)]) {
			return n
		}
	}
	return Other
}

// knownName finds the colon after the field name at the beginning of b, eight bytes at
// a time, and returns the Name and the index of the colon. A name that is spelled like
// a well-known one needs no check of each character. Other means that the name must be
// checked. It may be a well-known one that is close to the end of b.
func knownName(b []byte) (n Name, end int) {
	in := min(len(b), nameRow)
	if end = colonIndex(b[:in:in]); end == 0 || end > maxName {
		return Other, 0
	}
	first, surplus := binary.LittleEndian.Uint64(b), max(64-8*end, 0)
	for n := Name(nameStart[end]); n < Name(nameStart[end+1]); n++ {
		row := n.row()
		if foldedDiff(first, loadUint64(row))<<(surplus&63) == 0 && equalFoldRest(b[:end], row) {
			return n, end
		}
	}
	return Other, 0
}

// equalFoldRest compares what follows the first eight bytes of a name.
func equalFoldRest(s []byte, row string) bool {
	last := len(s) - 8 // the last eight bytes may overlap with others
	return last <= 0 || foldedDiff(binary.LittleEndian.Uint64(s[last:]), loadUint64(row[last:])) == 0 &&
		(last <= 8 || foldedDiff(binary.LittleEndian.Uint64(s[8:]), loadUint64(row[8:])) == 0)
}

// colonIndex returns the index of the first colon in b, or 0 if there is none before the
// last seven bytes.
func colonIndex(b []byte) int {
	for i := 0; i <= len(b)-8; i += 8 {
		if at := zeroByte(binary.LittleEndian.Uint64(b[i:]) ^ lowBits*':'); at != 0 {
			return i + byteIndex(at)
		}
	}
	return 0
}
