// Command bill writes what is inside a binary of Weir: a bill of materials in CycloneDX
// and the licences of all of it. It reads the build information of the binary, as go
// version -m does, and the module cache; the same binary gives the same bytes.
//
//	go run . -version v1.2.3 -sbom weir.cdx.json -licenses LICENSES ../../../weir
package main

import (
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

func main() {
	version := flag.String("version", "", "version of Weir, if it is not in the binary")
	sbom := flag.String("sbom", "", "`file` for the bill of materials")
	licenses := flag.String("licenses", "", "`file` for the licences")
	top := flag.String("top", "../../..", "`folder` of the repository")
	flag.Parse()
	if err := write(flag.Arg(0), *version, *top, outputs{sbom: *sbom, licenses: *licenses}); err != nil {
		fmt.Fprintln(os.Stderr, "bill:", err)
		os.Exit(1)
	}
}

// The outputs are the files to write, "" for none.
type outputs struct{ sbom, licenses string }

func write(binary, version, top string, to outputs) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read the build information of %q: %w", binary, err)
	}
	if version != "" {
		info.Main.Version = version
	}
	parts, err := partsOf(info, top)
	if err != nil {
		return err
	}
	if to.licenses != "" {
		if err := os.WriteFile(to.licenses, licenseText(parts), 0o644); err != nil {
			return err
		}
	}
	if to.sbom == "" {
		return nil
	}
	text, err := sbomText(info, parts)
	if err != nil {
		return err
	}
	return os.WriteFile(to.sbom, text, 0o644)
}

// licenseText returns the texts of all parts, each once, with the parts it is of.
func licenseText(parts []part) []byte {
	var b strings.Builder
	b.WriteString("Weir is licensed under the Apache License 2.0. It contains the software below, under the\nlicences that follow it.\n\n")
	users := map[string][]string{}
	var texts []string
	for _, p := range parts {
		fmt.Fprintf(&b, "%s %s: %s\n", p.name, p.version, strings.Join(p.ids, " AND "))
		for _, f := range p.files {
			if users[f.text] == nil {
				texts = append(texts, f.text)
			}
			users[f.text] = append(users[f.text], p.name+" ("+f.name+")")
		}
	}
	for _, text := range texts {
		b.WriteString("\n" + strings.Repeat("=", 80) + "\n")
		for _, user := range slices.Compact(users[text]) {
			b.WriteString(user + "\n")
		}
		b.WriteString(strings.Repeat("-", 80) + "\n" + text)
	}
	return []byte(b.String())
}
