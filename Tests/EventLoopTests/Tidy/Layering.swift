// Finds the types and members that a folder uses of the folders above it.
//
// The check reads tokens and resolves names without the compiler. It knows the type of a receiver only if the receiver is `self`, a type,
// or a variable that is named after its type (`source.…`, `membership.…`, `loop.…`). A name without a receiver is looked up in the types
// around the line and in the types that they inherit from. A member of any other receiver is looked up by its name alone. If several
// folders declare that name, the lowest counts; if the standard library has a member of that name, the use is not reported. So the check
// can miss an upward use with a common name on a receiver of unknown type. It finds every upward use of a type, of a loop's member through
// a variable `loop`, and of a member of the type around the line.

/// A file of a layered library.
struct LayeredFile: Sendable {
    let folder: String
    let name: String
    let source: ScannedSource

    init(folder: String, name: String, text: String) {
        (self.folder, self.name) = (folder, name)
        source = ScannedSource(Lexer.tokens(of: text))
    }
}

struct UpwardUse: Hashable, CustomStringConvertible {
    let file: String
    let line: Int
    let name: String
    /// The folders that declare it.
    let declaredIn: [String]

    var description: String { "\(file):\(line) uses \(name) of \(declaredIn.joined(separator: ", "))" }
}

/// The folders of a library, from the lowest level up. A file may use its own folder and the levels below.
struct Layering {
    private let levels: [[String]]
    private let folders: [String]
    /// Types that every folder may name. Their members are checked like any other.
    private let forwardTypes: Set<String>
    /// The types of receivers that are not named exactly after their types.
    private let receivers: [String: String]
    /// Members of the standard library. On a receiver of unknown type they are not reported.
    private let standardMembers: Set<String>

    init(
        _ levels: [[String]], forwardTypes: Set<String> = [], receivers: [String: String] = [:], standardMembers: Set<String> = []
    ) {
        (self.levels, self.forwardTypes, self.receivers, self.standardMembers) = (levels, forwardTypes, receivers, standardMembers)
        folders = levels.flatMap { $0 }
    }

    func upwardUses(in files: [LayeredFile]) -> [UpwardUse] {
        let index = DeclarationIndex(files, folders)
        return files.flatMap { file in
            let allowed = allowedFolders(of: file.folder)
            return file.source.uses.compactMap { use -> UpwardUse? in
                guard let declaring = declaringFolders(of: use, in: file, index, allowed) else { return nil }
                return UpwardUse(
                    file: "\(file.folder)/\(file.name)", line: use.line, name: use.name,
                    declaredIn: folders.indices.filter { declaring.contains($0) }.map { folders[$0] })
            }
        }
    }

    private func allowedFolders(of folder: String) -> FolderSet {
        var allowed = FolderSet()
        for level in levels {
            if level.contains(folder) { break }
            for lower in level { allowed.insert(folders.firstIndex(of: lower)!) }  // `folders` has all of `levels`
        }
        if let own = folders.firstIndex(of: folder) { allowed.insert(own) }
        return allowed
    }

    /// The folders that declare the used name, if the file may use none of them; otherwise nil.
    private func declaringFolders(of use: ScannedSource.Use, in file: LayeredFile, _ index: DeclarationIndex, _ allowed: FolderSet)
        -> FolderSet?
    {
        let declaring: FolderSet
        if use.isType {
            if forwardTypes.contains(use.name) { return nil }
            declaring = index.types[use.name] ?? FolderSet()
        } else {
            switch use.receiver {
            case .none:
                // A local name hides a member.
                if file.source.locals.contains(use.name) || file.source.privateNames.contains(use.name) { return nil }
                declaring = index.members(named: use.name, of: use.enclosing).union(index.globals[use.name] ?? FolderSet())
            case .itself:
                if file.source.privateNames.contains(use.name) { return nil }
                declaring = index.members(named: use.name, of: use.enclosing.suffix(1))
            case .named(let receiver):
                let type = receivers[receiver] ?? (index.isType(receiver) ? receiver : capitalized(receiver))
                let known = index.members(named: use.name, of: [type])
                if known.isEmpty && standardMembers.contains(use.name) { return nil }
                declaring = known.isEmpty ? index.anyMembers(named: use.name, hiddenBy: file) : known
            case .other:
                if standardMembers.contains(use.name) { return nil }
                declaring = index.anyMembers(named: use.name, hiddenBy: file)
            }
        }
        return declaring.isEmpty || !declaring.isDisjoint(with: allowed) ? nil : declaring
    }

    private func capitalized(_ name: String) -> String { name.prefix(1).uppercased() + name.dropFirst() }
}

/// A set of folder indices.
struct FolderSet {
    private var bits: UInt32 = 0

    var isEmpty: Bool { bits == 0 }
    mutating func insert(_ index: Int) { bits |= 1 << UInt32(index) }
    func contains(_ index: Int) -> Bool { bits & 1 << UInt32(index) != 0 }
    func isDisjoint(with other: FolderSet) -> Bool { bits & other.bits == 0 }

    func union(_ other: FolderSet) -> FolderSet {
        var union = self
        union.bits |= other.bits
        return union
    }
}

/// The declarations of all files that other files can see.
private struct DeclarationIndex {
    /// Types at the top level of a file, or directly in an extension of `RunLoop`, which contains the public types.
    private(set) var types: [String: FolderSet] = [:]
    /// Functions and variables outside of types.
    private(set) var globals: [String: FolderSet] = [:]
    private var membersByName: [String: FolderSet] = [:]
    private var membersByType: [String: [String: FolderSet]] = [:]
    private var parents: [String: Set<String>] = [:]

    init(_ files: [LayeredFile], _ folders: [String]) {
        for file in files {
            guard let folder = folders.firstIndex(of: file.folder) else { continue }
            for declaration in file.source.declarations {
                if declaration.isType {
                    parents[declaration.name, default: []].formUnion(declaration.parents)
                    if declaration.isExtension || declaration.isPrivate { continue }
                    if declaration.enclosing.isEmpty || declaration.enclosing == ["RunLoop"] {
                        types[declaration.name, default: FolderSet()].insert(folder)
                    }
                } else if declaration.isPrivate {
                    continue
                } else if let type = declaration.enclosing.last {
                    membersByName[declaration.name, default: FolderSet()].insert(folder)
                    membersByType[type, default: [:]][declaration.name, default: FolderSet()].insert(folder)
                } else {
                    globals[declaration.name, default: FolderSet()].insert(folder)
                }
            }
        }
    }

    func isType(_ name: String) -> Bool { types[name] != nil || membersByType[name] != nil }

    /// The folders in which the types, or the types that they inherit from, have such a member.
    func members(named name: String, of types: [String]) -> FolderSet {
        guard membersByName[name] != nil else { return FolderSet() }
        var found = FolderSet()
        var (left, seen) = (types, Set<String>())
        while let type = left.popLast() {  // ends: each type is visited once
            guard seen.insert(type).inserted else { continue }
            if let folders = membersByType[type]?[name] { found = found.union(folders) }
            left += parents[type] ?? []
        }
        return found
    }

    func anyMembers(named name: String, hiddenBy file: LayeredFile) -> FolderSet {
        file.source.privateNames.contains(name) ? FolderSet() : membersByName[name] ?? FolderSet()
    }
}
