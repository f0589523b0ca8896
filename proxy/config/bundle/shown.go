package bundle

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
)

// Shown returns b for people who compare configurations: instead of each line with a value of a sensitive key, in lists
// and overrides, it has a short hash with once. c is b as it was loaded. If a value is written over several lines, this
// holds for all lines of its file.
func (b Bundle) Shown(c *config.Config, once []byte) Bundle {
	shown := Bundle{Main: b.Main, Files: maps.Clone(b.Files)}
	hidden := map[string]map[int]bool{} // by file, from 0
	unquote := strings.NewReplacer(`\`, "", "''", "'")
	for _, v := range c.Values() {
		if !v.IsConcealed() || v.IsVariable() {
			continue
		}
		name := v.Where()
		if hidden[name] == nil {
			hidden[name] = map[int]bool{}
		}
		lines := strings.Split(b.Files[name], "\n")
		if v.File == "" && strings.Contains(unquote.Replace(lines[v.Line-1]), unquote.Replace(v.Text)) {
			hidden[name][v.Line-1] = true
			continue
		}
		for i := range lines {
			hidden[name][i] = true
		}
	}
	for name, numbers := range hidden {
		lines := strings.Split(b.Files[name], "\n")
		for i := range numbers {
			if strings.TrimSpace(lines[i]) != "" {
				mac := hmac.New(sha256.New, once)
				mac.Write([]byte(lines[i]))
				lines[i] = fmt.Sprintf("(not shown, %x)", mac.Sum(nil)[:3])
			}
		}
		shown.Files[name] = strings.Join(lines, "\n")
	}
	return shown
}
