package form

import (
	"slices"
	"strings"
)

// Suggest returns what to write instead of word: the nearest choice if one is similar, else
// all of them.
func Suggest(word string, choices []string) string {
	if best := Near(word, choices); best != "" || len(choices) == 0 {
		return best
	}
	return "write " + either(choices)
}

// Near returns "did you mean X?" with the nearest choice; "" if none is similar.
func Near(word string, choices []string) string {
	best, _ := nearest(word, choices)
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

// nearest returns the choice that is nearest to word and its distance; "" if none is similar.
func nearest(word string, choices []string) (best string, least int) {
	least = 1 + max(1, len(word)/3)
	for _, c := range choices {
		if n := distance(strings.ToLower(word), strings.ToLower(c)); n < min(least, len(word)) {
			best, least = c, n
		}
	}
	return best, least
}

// either lists choices: a, b or c.
func either(choices []string) string {
	last := len(choices) - 1
	if last == 0 {
		return choices[0]
	}
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// distance returns the edit distance (Levenshtein) of a and b: the number of characters to
// insert, delete, replace, or swap with their neighbor (optimal string alignment). It takes
// len(a) * len(b) steps, and is limited to the length of valid words.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 100
	}
	var before, above []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, above, row = above, row, slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(above[j]+cost, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
