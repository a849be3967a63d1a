#include "runtime/bundle/elf_image.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <map>
#include <set>
#include <type_traits>
#include <vector>

namespace qwen35 {
namespace {

constexpr uint64_t kMaxMemory = uint64_t(1) << 32; // of the loaded image
constexpr uint64_t kPage = 4096;

template <typename... Parts> absl::Status invalid(const Parts &...parts) {
  return absl::InvalidArgumentError(
      absl::StrCat("the kernels' ELF image ", parts...));
}

class Image {
public:
  explicit Image(absl::Span<const uint8_t> bytes) : bytes(bytes) {}

  absl::Status check(absl::Span<const std::string> symbols) {
    QWEN35_RETURN_IF_ERROR(header());
    QWEN35_RETURN_IF_ERROR(segments());
    QWEN35_RETURN_IF_ERROR(dynamicTable());
    QWEN35_RETURN_IF_ERROR(symbolTable());
    QWEN35_RETURN_IF_ERROR(relocations());
    for (const std::string &symbol : symbols)
      QWEN35_RETURN_IF_ERROR(definesFunction(symbol));
    return absl::OkStatus();
  }

private:
  /// Copies record `index` of a table in the file; the image may be unaligned.
  template <typename T> T at(uint64_t offset, uint64_t index = 0) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, bytes.data() + offset + index * sizeof(T), sizeof(T));
    return value;
  }
  bool inFile(uint64_t offset, uint64_t size) const {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  }

  absl::Status header() {
    if (bytes.size() < sizeof(Elf64_Ehdr) ||
        std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0)
      return invalid("of ", bytes.size(), " bytes is not an ELF file");
    ehdr = at<Elf64_Ehdr>(0);
    if (ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
        ehdr.e_ident[EI_DATA] != ELFDATA2LSB ||
        ehdr.e_ident[EI_VERSION] != EV_CURRENT || ehdr.e_machine != EM_X86_64)
      return invalid("is for machine ", ehdr.e_machine, ", class ",
                     int(ehdr.e_ident[EI_CLASS]), ", expected x86-64 (",
                     EM_X86_64, "), class ", ELFCLASS64);
    if (ehdr.e_ident[EI_OSABI] != ELFOSABI_SYSV &&
        ehdr.e_ident[EI_OSABI] != ELFOSABI_GNU)
      return invalid("has OS ABI ", int(ehdr.e_ident[EI_OSABI]),
                     ", expected System V");
    if (ehdr.e_type != ET_DYN)
      return invalid("is of type ", ehdr.e_type, ", expected a shared object (",
                     ET_DYN, ")");
    if (ehdr.e_phentsize != sizeof(Elf64_Phdr) || ehdr.e_phnum == 0 ||
        ehdr.e_phnum > 64)
      return invalid("has ", ehdr.e_phnum, " program headers of ",
                     ehdr.e_phentsize, " bytes, expected 1 to 64 of ",
                     sizeof(Elf64_Phdr));
    if (!inFile(ehdr.e_phoff, ehdr.e_phnum * sizeof(Elf64_Phdr)))
      return invalid("has its program headers at byte ", ehdr.e_phoff,
                     ", past its end");
    return absl::OkStatus();
  }

  absl::Status segments() {
    bool hasDynamic = false;
    for (int i = 0; i < ehdr.e_phnum; ++i) {
      Elf64_Phdr segment = at<Elf64_Phdr>(ehdr.e_phoff, i);
      switch (segment.p_type) {
      case PT_LOAD:
        QWEN35_RETURN_IF_ERROR(load(i, segment));
        break;
      case PT_DYNAMIC:
        if (hasDynamic)
          return invalid("has two dynamic segments");
        hasDynamic = true;
        dynamic = segment;
        break;
      case PT_GNU_STACK:
        if (segment.p_flags & PF_X)
          return invalid("asks for an executable stack");
        break;
      case PT_GNU_RELRO:
      case PT_PHDR:
      case PT_NOTE:
      case PT_GNU_EH_FRAME:
      case PT_GNU_PROPERTY:
        extras.push_back(segment);
        break;
      case PT_NULL:
        break;
      default:
        return invalid("has a segment of type ", segment.p_type,
                       segment.p_type == PT_TLS      ? " (thread-local data)"
                       : segment.p_type == PT_INTERP ? " (an interpreter)"
                                                     : "",
                       ", which kernels do not need");
      }
    }
    if (!hasDynamic || loads.empty())
      return invalid("has ", loads.size(), " segments to load and ",
                     hasDynamic ? "a" : "no", " dynamic segment");
    QWEN35_RETURN_IF_ERROR(backed("dynamic segment", dynamic));
    // The loader adds its base address to the entries in place.
    if (!memoryOf(dynamic.p_vaddr, dynamic.p_filesz, PF_W))
      return invalid("has its dynamic segment in read-only memory");
    for (const Elf64_Phdr &extra : extras)
      if (extra.p_type == PT_GNU_RELRO) {
        if (!memoryOf(extra.p_vaddr, extra.p_memsz, PF_W))
          return invalid("protects memory outside its writable segments");
      } else {
        QWEN35_RETURN_IF_ERROR(
            backed(absl::StrCat("segment of type ", extra.p_type), extra));
        if (extra.p_type == PT_PHDR && extra.p_offset != ehdr.e_phoff)
          return invalid("says that its program headers are at byte ",
                         extra.p_offset, " and at byte ", ehdr.e_phoff);
      }
    return absl::OkStatus();
  }

  /// The loader reads these where they are mapped: that has to be the bytes
  /// that are checked here.
  absl::Status backed(const std::string &what, const Elf64_Phdr &segment) {
    const Elf64_Phdr *load = loadOf(segment.p_vaddr, segment.p_filesz);
    if (!load || segment.p_memsz != segment.p_filesz ||
        segment.p_offset - load->p_offset != segment.p_vaddr - load->p_vaddr)
      return invalid("has its ", what, " of ", segment.p_memsz,
                     " bytes at address ", segment.p_vaddr,
                     ", which is not where it is loaded");
    if (segment.p_type == PT_PHDR &&
        segment.p_filesz != ehdr.e_phnum * sizeof(Elf64_Phdr))
      return invalid("has ", ehdr.e_phnum, " program headers in ",
                     segment.p_filesz, " bytes");
    return absl::OkStatus();
  }

  absl::Status load(int index, const Elf64_Phdr &segment) {
    if (!inFile(segment.p_offset, segment.p_filesz) ||
        segment.p_filesz > segment.p_memsz || segment.p_memsz > kMaxMemory ||
        segment.p_vaddr > kMaxMemory)
      return invalid("has segment ", index, " with ", segment.p_filesz,
                     " bytes at byte ", segment.p_offset, " of the file and ",
                     segment.p_memsz, " at address ", segment.p_vaddr,
                     ", outside the file or the ", kMaxMemory,
                     " bytes of address space a bundle may take");
    if ((segment.p_flags & PF_W) && (segment.p_flags & PF_X))
      return invalid("has segment ", index, " both writable and executable");
    if (!(segment.p_flags & PF_R))
      return invalid("has segment ", index, ", which cannot be read");
    if (segment.p_align > (uint64_t(1) << 21) ||
        (segment.p_align & (segment.p_align - 1)) != 0 ||
        segment.p_align < kPage ||
        (segment.p_vaddr - segment.p_offset) % segment.p_align != 0)
      return invalid("has segment ", index, " aligned to ", segment.p_align,
                     " bytes, expected a power of two from 4096 to 2 MiB that "
                     "its address and offset agree with");
    // The loader takes first and last as the extent of the image, and maps
    // whole pages: one that two segments share would hold the second one's
    // bytes only.
    if (!loads.empty() && segment.p_vaddr / kPage * kPage <
                              loads.back().p_vaddr + loads.back().p_memsz)
      return invalid("has segment ", index,
                     " on or below the last page of the one before");
    loads.push_back(segment);
    return absl::OkStatus();
  }

  /// The segment whose *file* bytes cover [address, address + size).
  const Elf64_Phdr *loadOf(uint64_t address, uint64_t size) const {
    for (const Elf64_Phdr &load : loads)
      if (address >= load.p_vaddr && address - load.p_vaddr <= load.p_filesz &&
          size <= load.p_filesz - (address - load.p_vaddr))
        return &load;
    return nullptr;
  }
  /// The segment with `flags` whose memory covers [address, address + size).
  const Elf64_Phdr *memoryOf(uint64_t address, uint64_t size,
                             uint32_t flags) const {
    for (const Elf64_Phdr &load : loads)
      if ((load.p_flags & flags) == flags && address >= load.p_vaddr &&
          address - load.p_vaddr <= load.p_memsz &&
          size <= load.p_memsz - (address - load.p_vaddr))
        return &load;
    return nullptr;
  }

  /// File offset of a table named in the dynamic section.
  absl::Status place(const char *what, uint64_t address, uint64_t size,
                     uint64_t &offset) const {
    const Elf64_Phdr *load = loadOf(address, size);
    if (!load)
      return invalid("has its ", what, " of ", size, " bytes at address ",
                     address, ", outside its loaded segments");
    offset = load->p_offset + (address - load->p_vaddr);
    return absl::OkStatus();
  }

  absl::Status dynamicTable() {
    uint64_t count = dynamic.p_filesz / sizeof(Elf64_Dyn);
    bool ended = false;
    for (uint64_t i = 0; i < count && !ended; ++i) {
      Elf64_Dyn entry = at<Elf64_Dyn>(dynamic.p_offset, i);
      switch (entry.d_tag) {
      case DT_NULL:
        ended = true;
        break;
      case DT_FLAGS:
        if (entry.d_un.d_val & ~uint64_t(DF_BIND_NOW | DF_SYMBOLIC))
          return invalid("has dynamic flags ", entry.d_un.d_val,
                         ", expected at most BIND_NOW and SYMBOLIC");
        break;
      case DT_FLAGS_1:
        if (entry.d_un.d_val & ~uint64_t(DF_1_NOW | DF_1_NODELETE))
          return invalid("has dynamic flags_1 ", entry.d_un.d_val,
                         ", expected at most NOW");
        break;
      case DT_SONAME:
      case DT_HASH:
      case DT_GNU_HASH:
      case DT_STRTAB:
      case DT_SYMTAB:
      case DT_STRSZ:
      case DT_SYMENT:
      case DT_RELA:
      case DT_RELASZ:
      case DT_RELAENT:
      case DT_RELACOUNT:
      case DT_JMPREL:
      case DT_PLTRELSZ:
      case DT_PLTREL:
      case DT_PLTGOT:
      case DT_BIND_NOW:
      case DT_SYMBOLIC:
        if (!tags.emplace(entry.d_tag, entry.d_un.d_val).second)
          return invalid("has two dynamic entries with tag ", entry.d_tag);
        break;
      case DT_NEEDED:
        return invalid("needs another library, but kernels import nothing");
      default:
        return invalid("has a dynamic entry with tag ", entry.d_tag,
                       initialiser(entry.d_tag) ? " (code run at load)" : "",
                       ", which kernels do not need");
      }
    }
    if (!ended)
      return invalid("has a dynamic table of ", count,
                     " entries without an end");
    return absl::OkStatus();
  }

  static bool initialiser(int64_t tag) {
    return tag == DT_INIT || tag == DT_INIT_ARRAY || tag == DT_INIT_ARRAYSZ ||
           tag == DT_FINI || tag == DT_FINI_ARRAY || tag == DT_FINI_ARRAYSZ ||
           tag == DT_PREINIT_ARRAY || tag == DT_PREINIT_ARRAYSZ;
  }

  absl::Status need(int64_t tag, const char *what, uint64_t &value) const {
    auto it = tags.find(tag);
    if (it == tags.end())
      return invalid("has no ", what);
    value = it->second;
    return absl::OkStatus();
  }

  absl::Status symbolTable() {
    uint64_t address = 0, entry = 0;
    QWEN35_RETURN_IF_ERROR(need(DT_STRTAB, "string table", address));
    QWEN35_RETURN_IF_ERROR(need(DT_STRSZ, "string table size", stringBytes));
    QWEN35_RETURN_IF_ERROR(
        place("string table", address, stringBytes, strings));
    if (stringBytes == 0 || bytes[strings + stringBytes - 1] != 0)
      return invalid("has a string table that does not end with a zero byte");
    if (auto it = tags.find(DT_SONAME);
        it != tags.end() && it->second >= stringBytes)
      return invalid("has its own name at ", it->second,
                     " of a string table of ", stringBytes, " bytes");
    QWEN35_RETURN_IF_ERROR(need(DT_SYMTAB, "symbol table", address));
    QWEN35_RETURN_IF_ERROR(need(DT_SYMENT, "symbol size", entry));
    if (entry != sizeof(Elf64_Sym))
      return invalid("has symbols of ", entry, " bytes, expected ",
                     sizeof(Elf64_Sym));
    QWEN35_RETURN_IF_ERROR(countSymbols());
    QWEN35_RETURN_IF_ERROR(place("symbol table", address,
                                 symbolCount * sizeof(Elf64_Sym), symbols));
    for (uint64_t i = 1; i < symbolCount; ++i)
      QWEN35_RETURN_IF_ERROR(checkSymbol(i, at<Elf64_Sym>(symbols, i)));
    return absl::OkStatus();
  }

  /// The symbol table has no length of its own: the hash tables, which the
  /// loader walks, say how many entries it has. Both are checked as far as it
  /// walks.
  absl::Status countSymbols() {
    uint64_t offset = 0;
    if (auto it = tags.find(DT_HASH); it != tags.end()) {
      QWEN35_RETURN_IF_ERROR(place("hash table", it->second, 8, offset));
      uint64_t buckets = at<uint32_t>(offset), chains = at<uint32_t>(offset, 1);
      QWEN35_RETURN_IF_ERROR(
          place("hash table", it->second, 8 + 4 * (buckets + chains), offset));
      if (buckets == 0)
        return invalid("has a hash table without buckets");
      for (uint64_t i = 0; i < buckets + chains; ++i)
        if (uint32_t symbol = at<uint32_t>(offset, 2 + i); symbol >= chains)
          return invalid("has symbol ", symbol, " in a hash table of ", chains);
      QWEN35_RETURN_IF_ERROR(checkChains(offset, buckets, chains));
      symbolCount = chains;
    }
    if (auto it = tags.find(DT_GNU_HASH); it != tags.end()) {
      uint64_t count = 0;
      QWEN35_RETURN_IF_ERROR(countGnuHash(it->second, count));
      if (tags.count(DT_HASH) && count > symbolCount)
        return invalid("has ", symbolCount, " symbols in one hash table and ",
                       count, " in the other");
      symbolCount = std::max(symbolCount, count);
    }
    if (symbolCount == 0)
      return invalid("has no table of symbols");
    return absl::OkStatus();
  }

  /// A chain that runs in a circle would hang the loader.
  absl::Status checkChains(uint64_t offset, uint64_t buckets,
                           uint64_t chains) const {
    std::vector<bool> seen(chains);
    for (uint64_t b = 0; b < buckets; ++b)
      for (uint32_t symbol = at<uint32_t>(offset, 2 + b); symbol != 0;
           symbol = at<uint32_t>(offset, 2 + buckets + symbol)) {
        if (seen[symbol])
          return invalid("has symbol ", symbol, " twice in its hash table");
        seen[symbol] = true;
      }
    return absl::OkStatus();
  }

  absl::Status countGnuHash(uint64_t address, uint64_t &count) const {
    uint64_t offset = 0;
    QWEN35_RETURN_IF_ERROR(place("GNU hash table", address, 16, offset));
    uint64_t buckets = at<uint32_t>(offset), first = at<uint32_t>(offset, 1),
             words = at<uint32_t>(offset, 2), shift = at<uint32_t>(offset, 3);
    if (buckets == 0 || words == 0 || (words & (words - 1)) != 0 || shift > 31)
      return invalid("has a GNU hash table of ", buckets, " buckets, ", words,
                     " filter words and shift ", shift);
    uint64_t head = 16 + 8 * words + 4 * buckets;
    const Elf64_Phdr *load = loadOf(address, head);
    if (!load)
      return invalid("has its GNU hash table of ", head, " bytes at address ",
                     address, ", outside its loaded segments");
    // Chains fill what is left of the segment at most.
    uint64_t room = (load->p_filesz - (address - load->p_vaddr) - head) / 4;
    uint64_t chains = offset + head;
    count = first;
    for (uint64_t b = 0; b < buckets; ++b) {
      uint64_t symbol = at<uint32_t>(offset + 16 + 8 * words, b);
      if (symbol == 0)
        continue;
      if (symbol < first)
        return invalid("has symbol ", symbol,
                       " in a GNU hash table that "
                       "begins at ",
                       first);
      if (symbol < count) // The chain's tail was walked from another bucket.
        return invalid("has overlapping chains in its GNU hash table");
      for (bool last = false; !last; ++symbol) {
        if (symbol - first >= room)
          return invalid("has a GNU hash chain that leaves its segment");
        last = at<uint32_t>(chains, symbol - first) & 1;
      }
      count = symbol;
    }
    return absl::OkStatus();
  }

  std::string name(const Elf64_Sym &symbol) const {
    return symbol.st_name < stringBytes
               ? std::string(reinterpret_cast<const char *>(bytes.data()) +
                             strings + symbol.st_name)
               : std::string();
  }

  absl::Status checkSymbol(uint64_t index, const Elf64_Sym &symbol) {
    if (symbol.st_name >= stringBytes)
      return invalid("has the name of symbol ", index, " at ", symbol.st_name,
                     " of a string table of ", stringBytes, " bytes");
    int type = ELF64_ST_TYPE(symbol.st_info);
    if (type != STT_NOTYPE && type != STT_OBJECT && type != STT_FUNC &&
        type != STT_SECTION && type != STT_FILE)
      return invalid("has symbol ", quoted(name(symbol)), " of type ", type,
                     ", expected a function or data");
    int binding = ELF64_ST_BIND(symbol.st_info);
    if (binding != STB_LOCAL && binding != STB_GLOBAL && binding != STB_WEAK)
      return invalid("has symbol ", quoted(name(symbol)), " of binding ",
                     binding, ", expected local, global or weak");
    if (symbol.st_shndx == SHN_UNDEF) {
      static const std::set<std::string> kAllowed = {"memcpy", "memmove",
                                                     "memset"};
      if (!kAllowed.count(name(symbol)))
        return invalid("imports ", quoted(name(symbol)),
                       ", but kernels may import only memcpy, memmove and "
                       "memset");
      return absl::OkStatus();
    }
    if (symbol.st_shndx == SHN_ABS || symbol.st_shndx == SHN_COMMON ||
        symbol.st_shndx == SHN_XINDEX)
      return invalid("has symbol ", quoted(name(symbol)), " in section ",
                     symbol.st_shndx, ", expected a section of its own");
    defined[name(symbol)] = symbol;
    return absl::OkStatus();
  }

  absl::Status relocations() {
    uint64_t address = 0, size = 0, entry = 0;
    if (tags.count(DT_RELA)) {
      QWEN35_RETURN_IF_ERROR(need(DT_RELA, "relocations", address));
      QWEN35_RETURN_IF_ERROR(need(DT_RELASZ, "relocation table size", size));
      QWEN35_RETURN_IF_ERROR(need(DT_RELAENT, "relocation size", entry));
      if (entry != sizeof(Elf64_Rela))
        return invalid("has relocations of ", entry, " bytes, expected ",
                       sizeof(Elf64_Rela));
      QWEN35_RETURN_IF_ERROR(
          relocationTable("relocation table", address, size));
      auto relative = tags.find(DT_RELACOUNT);
      if (relative != tags.end())
        QWEN35_RETURN_IF_ERROR(relativeFirst(address, size, relative->second));
    } else if (tags.count(DT_RELASZ) || tags.count(DT_RELACOUNT)) {
      return invalid("has a size but no place of its relocations");
    }
    if (tags.count(DT_JMPREL)) {
      uint64_t kind = 0, got = 0;
      QWEN35_RETURN_IF_ERROR(need(DT_JMPREL, "jump relocations", address));
      QWEN35_RETURN_IF_ERROR(need(DT_PLTRELSZ, "jump table size", size));
      QWEN35_RETURN_IF_ERROR(need(DT_PLTREL, "kind of jump table", kind));
      QWEN35_RETURN_IF_ERROR(need(DT_PLTGOT, "global offset table", got));
      if (kind != DT_RELA)
        return invalid("has a jump table of kind ", kind, ", expected RELA (",
                       DT_RELA, ")");
      // The loader stores two words of its own at the start of the table.
      if (!memoryOf(got, 24, PF_W))
        return invalid("has its global offset table at address ", got,
                       ", outside its writable segments");
      QWEN35_RETURN_IF_ERROR(relocationTable("jump table", address, size));
    } else if (tags.count(DT_PLTRELSZ) || tags.count(DT_PLTREL)) {
      return invalid("has a size but no place of its jump table");
    }
    return absl::OkStatus();
  }

  absl::Status relocationTable(const char *what, uint64_t address,
                               uint64_t size) const {
    uint64_t offset = 0;
    QWEN35_RETURN_IF_ERROR(place(what, address, size, offset));
    if (size % sizeof(Elf64_Rela) != 0)
      return invalid("has a ", what, " of ", size, " bytes, no multiple of ",
                     sizeof(Elf64_Rela));
    for (uint64_t i = 0; i < size / sizeof(Elf64_Rela); ++i) {
      Elf64_Rela entry = at<Elf64_Rela>(offset, i);
      uint64_t type = ELF64_R_TYPE(entry.r_info);
      if (type != R_X86_64_RELATIVE && type != R_X86_64_GLOB_DAT &&
          type != R_X86_64_JUMP_SLOT && type != R_X86_64_64)
        return invalid("has a relocation of type ", type,
                       ", expected RELATIVE, GLOB_DAT, JUMP_SLOT or 64");
      if (ELF64_R_SYM(entry.r_info) >= symbolCount)
        return invalid("has a relocation to symbol ", ELF64_R_SYM(entry.r_info),
                       " of ", symbolCount);
      if (type != R_X86_64_RELATIVE && ELF64_R_SYM(entry.r_info) == 0)
        return invalid("has a relocation to no symbol");
      if (!memoryOf(entry.r_offset, 8, PF_W))
        return invalid("relocates address ", entry.r_offset,
                       ", outside its writable segments");
      if (entry.r_offset + 8 > dynamic.p_vaddr &&
          entry.r_offset < dynamic.p_vaddr + dynamic.p_filesz)
        return invalid("relocates its own dynamic table");
    }
    return absl::OkStatus();
  }

  /// The loader applies the first RELACOUNT entries as RELATIVE unseen.
  absl::Status relativeFirst(uint64_t address, uint64_t size,
                             uint64_t count) const {
    uint64_t offset = 0;
    QWEN35_RETURN_IF_ERROR(place("relocation table", address, size, offset));
    if (count > size / sizeof(Elf64_Rela))
      return invalid("has ", count, " relative relocations among ",
                     size / sizeof(Elf64_Rela));
    for (uint64_t i = 0; i < count; ++i)
      if (ELF64_R_TYPE(at<Elf64_Rela>(offset, i).r_info) != R_X86_64_RELATIVE)
        return invalid("counts relocation ", i,
                       " as relative, which it is not");
    return absl::OkStatus();
  }

  absl::Status definesFunction(const std::string &symbol) const {
    auto it = defined.find(symbol);
    if (it == defined.end())
      return invalid("does not define the kernel ", quoted(symbol));
    const Elf64_Sym &entry = it->second;
    if (ELF64_ST_TYPE(entry.st_info) != STT_FUNC ||
        ELF64_ST_BIND(entry.st_info) == STB_LOCAL ||
        !memoryOf(entry.st_value, std::max<uint64_t>(entry.st_size, 1), PF_X))
      return invalid("defines ", quoted(symbol),
                     ", but not as a function in executable memory");
    return absl::OkStatus();
  }

  absl::Span<const uint8_t> bytes;
  Elf64_Ehdr ehdr = {};
  std::vector<Elf64_Phdr> loads;
  Elf64_Phdr dynamic = {};
  std::vector<Elf64_Phdr> extras; // inside the loaded segments
  std::map<int64_t, uint64_t> tags;
  uint64_t strings = 0, stringBytes = 0;
  uint64_t symbols = 0, symbolCount = 0;
  std::map<std::string, Elf64_Sym> defined;
};

} // namespace

absl::Status checkElfImage(absl::Span<const uint8_t> image,
                           absl::Span<const std::string> symbols) {
  return Image(image).check(symbols);
}

} // namespace qwen35
